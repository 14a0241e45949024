package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// failingVolumes answers with one error.
type failingVolumes struct {
	Preparer
	err error
}

func (f failingVolumes) Ready(types.UID) (bool, error) { return false, f.err }

// noted keeps events and counts of refusals.
type noted struct {
	Admitter
	logged []string
}

func (n *noted) Refused(reason string) { n.logged = append(n.logged, "counted "+reason) }
func (n *noted) Pod(_ *v1.Pod, _, eventType, reason, message string) {
	n.logged = append(n.logged, eventType+" "+reason+" "+message)
}
func (n *noted) Node(eventType, reason, message string) {
	n.logged = append(n.logged, "node "+eventType+" "+reason+" "+message)
}

func TestVolumeRejectionEndsPod(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want []string
	}{
		{err: errors.New("not attached yet")},
		{fmt.Errorf("attach: %w", &pod.Rejection{
			Reason:  "VolumeAttachmentLimitExceeded",
			Message: "the node is full of them",
		}),
			[]string{"counted VolumeAttachmentLimitExceeded",
				"Warning VolumeAttachmentLimitExceeded the node is full of them"}},
	} {
		m, n := newMeasured(t), &noted{}
		m.cfg.Volumes.Preparer, m.cfg.Allocation.Admitter, m.cfg.Events = failingVolumes{err: tc.err}, n, n
		w := m.worker("u", podNamed("u", pod.SourceAPI))
		for range 2 { // it is reported once
			if (gatherer{w}).volumesReady() || !slices.Equal(n.logged, tc.want) {
				t.Errorf("%v: logged %q, want %q", tc.err, n.logged, tc.want)
			}
		}
		if refused := w.admission.rejection != nil; refused != (tc.want != nil) {
			t.Errorf("%v: refused %+v", tc.err, w.admission.rejection)
		}
	}
}

// waitingAdmitter makes pods wait for others to end, and counts the calls of Admit.
type waitingAdmitter struct {
	*node
	mu    sync.Mutex
	asked int
	waits bool
	meet  func() // called by Admit; nil: not called
}

func (r *waitingAdmitter) Admit(context.Context, *v1.Pod, bool) allocation.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.meet != nil {
		r.meet()
	}
	return allocation.Verdict{Waits: r.waits}
}

// A pod that waits is judged again whenever it is woken, also while it is being judged, and not for the outcome of
// that.
func TestWaitingPodIsJudgedAgain(t *testing.T) {
	n := &node{}
	r := &waitingAdmitter{node: n, waits: true}
	m := newMeasured(t).on(n)
	m.cfg.Allocation.Admitter = r
	m.cfg.Node.NetworkReady = func() error { return errors.New("no network yet") }
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	m.desired["u"] = struct{ spec, mirror *v1.Pod }{spec: w.source.spec}
	expect := func(when string, asked int, state podplan.State) {
		t.Helper()
		m.settled(w)
		if r.asked != asked || w.plan.State != state {
			t.Errorf("%s: asked %d times, %v; want %d times, %v", when, r.asked, w.plan.State, asked, state)
		}
	}
	w.mail.wake()
	expect("its records are read first", 0, podplan.Pending)
	expect("then it is judged", 1, podplan.Pending)
	expect("it waits", 1, podplan.Pending)
	if len(n.published) != 1 || n.published[0].Terminating {
		t.Errorf("published %+v, want that it waits", n.published)
	}
	expect("nothing has happened", 1, podplan.Pending)
	w.mail.wake()
	expect("it was woken", 2, podplan.Pending)
	expect("it waits on", 2, podplan.Pending)
	r.meet = func() { w.mail.wake() }
	w.mail.wake()
	expect("it was woken once more", 3, podplan.Pending)
	r.meet, r.waits = nil, false
	expect("it was woken while it was judged", 4, podplan.Pending)
	expect("it may run", 4, podplan.Syncing)
	w.mail.wake()
	expect("it was admitted once and for all", 4, podplan.Syncing)
}

// The worker of a pod is notified that the object was removed while the pod was being deleted.
func TestForceNotifiesWorker(t *testing.T) {
	m := newMeasured(t).on(&node{})
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	m.Force("u")
	m.Force("absent")
	m.turn(w)
	if !w.source.forced {
		t.Error("the worker does not know")
	}
}
