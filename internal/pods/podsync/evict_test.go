package podsync

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
)

// The eviction manager waits until an evicted pod has released its resources. A pod without a worker has, so it does
// not wait.
func TestEvictPodWithoutWorker(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	select {
	case <-s.Evict("gone", Eviction{Message: "The node was low on resource: memory. "}):
	case <-time.After(time.Minute):
		t.Error("it is waited for")
	}
}

// slowDisk keeps records of evictions, once goOn is closed.
type slowDisk struct {
	*node
	goOn  chan struct{}
	mu    sync.Mutex
	notes []string
}

func (d *slowDisk) NoteEviction(uid types.UID, e podplan.EvictionRecord) error {
	<-d.goOn
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, string(uid)+" "+e.Override.Reason)
	return nil
}

func (d *slowDisk) release() {
	select {
	case <-d.goOn:
	default:
		close(d.goOn)
	}
}

func TestEvictionIsRecordedBeforePodEnds(t *testing.T) {
	victim := allocation.Victim{UID: "u", Grace: 7 * time.Second, Reason: "Preempting", Message: "make room"}
	deleted := func(m *measured, w *worker) {
		w.source.spec.DeletionTimestamp = &metav1.Time{Time: m.now}
		w.source.spec.DeletionGracePeriodSeconds = ptr.To(int64(30))
	}
	for _, tc := range []struct {
		name   string
		before func(m *measured, w *worker)
		then   func(m *measured, w *worker, d *slowDisk)
		why    podplan.TerminationReason // empty: the pod does not end yet
		left   time.Duration
		notes  []string
	}{
		{
			name:  "it stays while the disk is waited for",
			then:  func(m *measured, w *worker, _ *slowDisk) { m.turn(w) },
			notes: []string{"u Preempting"},
		},
		{
			name: "it ends when that is done",
			then: func(m *measured, w *worker, d *slowDisk) {
				m.turn(w)
				d.release()
				w.tasks.group.Wait()
				m.turn(w)
			},
			why:   podplan.Preempted,
			left:  7 * time.Second,
			notes: []string{"u Preempting"},
		},
		{
			name: "a disk that hangs is not waited for",
			then: func(m *measured, w *worker, _ *slowDisk) {
				m.turn(w)
				m.advance(500 * time.Millisecond)
				m.turn(w)
			},
			why:   podplan.Preempted,
			left:  6500 * time.Millisecond,
			notes: []string{"u Preempting"},
		},
		{
			name: "a deletion meanwhile comes second",
			then: func(m *measured, w *worker, _ *slowDisk) {
				m.turn(w)
				deleted(m, w)
				m.turn(w)
			},
			why:   podplan.Preempted,
			left:  7 * time.Second,
			notes: []string{"u Preempting"},
		},
		{
			name: "a deletion that comes first is the reason, and nothing else is recorded",
			before: func(m *measured, w *worker) {
				deleted(m, w)
				m.turn(w)
			},
			then: func(m *measured, w *worker, _ *slowDisk) { m.turn(w) },
			why:  podplan.Deleted,
			left: 7 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &node{have: running()}
			m := newMeasured(t).on(n)
			d := &slowDisk{node: n, goOn: make(chan struct{})}
			m.cfg.Disk.EvictionRecords = d
			m.cfg.Runtime.Stopper = hung{}
			m.cfg.Node.NetworkReady = func() error { return context.Canceled }
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			m.Syncer.ctx = ctx
			w := m.worker("u", podNamed("u", pod.SourceAPI))
			m.desired["u"] = struct{ spec, mirror *v1.Pod }{spec: w.source.spec}
			w.admission.recovered, w.admission.state = true, podplan.Admitted
			w.sandboxes.sized = w.source.spec
			if tc.before != nil {
				tc.before(m, w)
			}
			m.preempt(victim) // returns though the disk does not answer
			tc.then(m, w, d)
			got := w.termination.Termination
			if (got != nil) != (tc.why != "") || got != nil && got.Reason != tc.why {
				t.Fatalf("terminating %+v, want %q", got, tc.why)
			}
			if got != nil && got.Deadline.Sub(m.now) != tc.left {
				t.Errorf("it has %v, want %v", got.Deadline.Sub(m.now), tc.left)
			}
			if got != nil && (got.Override != nil) != (tc.why == podplan.Preempted) {
				t.Errorf("shown as %+v", got.Override)
			}
			d.release()
			stop()
			for _, running := range w.tasks.running {
				running.cancel(nil)
			}
			w.tasks.group.Wait()
			if !slices.Equal(d.notes, tc.notes) {
				t.Errorf("recorded %q, want %q", d.notes, tc.notes)
			}
		})
	}
}

// running is a pod that runs in the runtime.
func running() pod.Runtime {
	box := pod.Sandbox{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}
	have := pod.Runtime{Ref: pod.Ref{Name: "u", Namespace: "ns", UID: "u"}, Sandboxes: []pod.Sandbox{box}}
	for _, name := range []string{"a", "b"} {
		have.Containers = append(have.Containers, pod.Container{
			ID:        name,
			Name:      name,
			SandboxID: "s",
			State:     pod.StateRunning,
			Hash:      pod.Hash(&v1.Container{Name: name}),
		})
	}
	return have
}

// Pods that arrive together are judged together, and one may be preempted before its worker was created. Another waits
// for its end.
func TestPreemptPodWithoutWorker(t *testing.T) {
	m := newMeasured(t)
	m.cfg.Observed = unlisted{}
	ctx, stop := context.WithCancel(t.Context())
	m.Syncer.ctx = ctx
	m.preempt(allocation.Victim{UID: "u", Grace: 7 * time.Second, Reason: "Preempting", Message: "make room"})
	m.Syncer.mu.Lock()
	w := m.workers["u"]
	m.Syncer.mu.Unlock()
	if w == nil {
		t.Fatal("no worker ends it")
	}
	stop()
	m.group.Wait()
	got, waits := w.termination.eviction.Pending, w.mail.take().requests
	if len(waits) > 0 {
		got = &waits[0].EvictionRecord // the worker has not taken its mail
	}
	if got == nil || got.Override.Reason != "Preempting" {
		t.Errorf("its eviction is %+v", got)
	}
}

// unlisted is a runtime that was not listed yet.
type unlisted struct{ Observed }

func (unlisted) Synced() <-chan struct{} { return nil }

// hung does not stop a container before it is cancelled.
type hung struct{ Stopper }

func (hung) StopContainer(ctx context.Context, _ container.Stop) error {
	<-ctx.Done()
	return ctx.Err()
}
