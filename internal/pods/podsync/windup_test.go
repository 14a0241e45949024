package podsync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
	"keelson/test/kit/parity"
)

// holder is everything that a pod holds on the node; it notes what is given back.
type holder struct {
	Volumes
	Objects
	Cgroups
	Allocation
	mu      sync.Mutex // tasks speak beside the turn
	said    []string
	mounted bool
	busy    error // of the volumes, while they are mounted
	claimed bool
	stuck   error // of the cgroup
}

func (h *holder) say(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, what)
}

// heldResources are the CPUs, devices and the like of a holder.
type heldResources struct {
	Resources
	of *holder
}

func (r heldResources) Release(types.UID)                             { r.of.say("resources") }
func (r heldResources) Health(*v1.Pod) map[string][]v1.ResourceStatus { return nil }

// heldClaims are the claims of a holder.
type heldClaims struct {
	Claims
	of *holder
}

func (c heldClaims) Release(pod.Ref)                  { c.of.say("release claims") }
func (c heldClaims) Released(types.UID) (bool, error) { return !c.of.claimed, nil }
func (c heldClaims) Health(*v1.Pod) map[string][]v1.ResourceStatus {
	return nil
}

func (h *holder) Release(pod.Ref) { h.say("release volumes") }
func (h *holder) Released(types.UID) (bool, error) {
	return !h.mounted, h.busy
}
func (h *holder) ReducePod(types.UID) error {
	h.say("reduce")
	return h.stuck
}
func (h *holder) Unregister(types.UID)      { h.say("objects") }
func (h *holder) Vacate(types.UID)          { h.say("room") }
func (h *holder) InForce(p *v1.Pod) *v1.Pod { return p }
func (h *holder) Conditions(types.UID) []v1.PodCondition {
	return nil
}
func (h *holder) Publish(f status.Facts) {
	switch {
	case f.Finished:
		h.say("finished")
	case !f.Down:
		h.say("lives")
	default:
		h.say("status")
	}
}
func (h *holder) Forget(types.UID) {}
func (h *holder) RemovePod(context.Context, types.UID) error {
	h.say("cgroup")
	return h.stuck
}

// holding is a worker whose pod holds all of h.
func (m *measured) holding(h *holder, spec *v1.Pod) *worker {
	m.cfg.Volumes, m.cfg.Objects, m.cfg.Cgroups, m.cfg.Allocation, m.cfg.Status = h, h, h, h, h
	m.cfg.Resources, m.cfg.Claims = heldResources{of: h}, heldClaims{of: h}
	m.cfg.HostIPs = func() []string { return nil }
	m.cfg.AddressMismatch = func() string { return "" }
	return m.worker("u", spec)
}

// windUpOnce is one turn of the end of a pod: what was given back in it.
func (m *measured) windUpOnce(w *worker, h *holder, then func(finished bool)) []string {
	var tasks sync.WaitGroup
	h.said = nil
	then(w.windUp(m.t.Context(), &tasks, pod.Runtime{}))
	tasks.Wait()
	m.now = m.now.Add(maxPause)
	return h.said
}

func TestWhatAPodHoldsIsGivenBackInOrder(t *testing.T) {
	parity.Differs(t, "LIFE-09", "0005")
	parity.ProvesPart(t, 2, "EVIC-38")
	m, h := newMeasured(t), &holder{claimed: true, mounted: true, stuck: errors.New("device or resource busy")}
	w := m.holding(h, podNamed("u", pod.SourceAPI))
	w.end(m.now, time.Second, nil, "deleted")
	turn := func() []string {
		return m.windUpOnce(w, h, func(finished bool) {
			w.publish(pod.Runtime{}, nil, finished)
			w.noteProgress(finished, false)
		})
	}
	for i, want := range [][]string{
		{"release claims", "lives"}, // as long as a driver has something prepared for it
		{"release claims", "resources", "room", "release volumes", "status"}, // and nothing else while anything is mounted
		{"release claims", "resources", "room", "release volumes", "objects", "cgroup", "status"},
		{"release claims", "resources", "room", "release volumes", "objects", "cgroup", "status"}, // it could not be removed
		{"release claims", "resources", "room", "release volumes", "objects", "cgroup", "status"},
		{"release claims", "resources", "room", "release volumes", "objects", "finished"},
	} {
		got := turn()
		// A node shutdown waits for that, including the unmounting of volumes.
		if w.isReleased() != slices.Contains(want, "finished") {
			t.Errorf("turn %d: the waiters for its end are notified: %t", i, w.isReleased())
		}
		beside := func(s string) bool { return s == "cgroup" } // it is removed by a task, beside the status
		if tasks := slices.ContainsFunc(got, beside); tasks != slices.ContainsFunc(want, beside) {
			t.Errorf("turn %d: %q, want %q", i, got, want)
		}
		if got, want := slices.DeleteFunc(got, beside), slices.DeleteFunc(want, beside); !slices.Equal(got, want) {
			t.Errorf("turn %d: %q, want %q, in this order", i, got, want)
		}
		switch i {
		case 0:
			h.claimed = false
		case 1:
			h.mounted = false
		case 3:
			h.stuck = nil
		}
	}
}

// While the volumes of a pod stay its cgroup does, with the least CPU; then it goes.
func TestAPodWhoseVolumesStayIsLeftWithTheLeast(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-20")
	for _, tc := range []struct {
		name    string
		busy    error
		adopted bool
		want    []string
	}{
		{"a volume cannot be released", errors.New("target is busy"), false, []string{"reduce", "reduce", "", "cgroup", ""}},
		{"nobody knows the pod, and its volumes take a while", nil, true, []string{"reduce", "reduce", "", "cgroup", ""}},
		{"its volumes are just being released", nil, false, []string{"", "", "", "cgroup", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, h := newMeasured(t), &holder{mounted: true, busy: tc.busy, stuck: errors.New("no")}
			w := m.holding(h, nil)
			w.adopted = tc.adopted
			for i, want := range tc.want {
				var got []string
				for _, s := range m.windUpOnce(w, h, func(bool) {}) {
					if s == "reduce" || s == "cgroup" {
						got = append(got, s)
					}
				}
				if strings.Join(got, " ") != want {
					t.Errorf("turn %d: %q, want %q", i, got, want)
				}
				switch i {
				case 0:
					h.stuck = nil // it is tried until it is done, and once
				case 2:
					h.mounted = false
				}
			}
		})
	}
}

// The scheduler places another pod as soon as the status of one is terminal. So the status is not
// terminal while its sandbox holds an address and host ports, as a dead sandbox does until it is stopped.
func TestAPodIsDownWhenItsSandboxIs(t *testing.T) {
	for _, tc := range []struct {
		name           string
		ready, stopped bool
		phase          v1.PodPhase
		want           string
	}{
		{"it runs", true, false, v1.PodRunning, "lives"},
		{"it died", false, false, v1.PodRunning, "lives"},
		{"it was stopped", false, true, v1.PodRunning, "status"},
		{"it was stopped by an agent before this one", false, false, v1.PodFailed, "status"},
	} {
		m, h := newMeasured(t), &holder{}
		w := m.holding(h, podNamed("u", pod.SourceAPI))
		w.end(m.now, time.Second, nil, "done")
		w.spec.Status.Phase = tc.phase
		if tc.stopped {
			w.sandboxStopped("s", nil)
		}
		have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s", Ready: tc.ready}}}
		w.keepStopped(have)
		w.publish(have, nil, false)
		if !slices.Equal(h.said, []string{tc.want}) {
			t.Errorf("%s: %q, want %q", tc.name, h.said, tc.want)
		}
	}
}
