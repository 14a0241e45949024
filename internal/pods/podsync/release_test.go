package podsync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
	"keelson/test/kit/parity"
)

// holder is everything that a pod holds on the node; it records what is released.
type holder struct {
	*node
	mu      sync.Mutex // tasks run in parallel with the turn
	logged  []string
	mounted bool
	busy    error // of the volumes, while they are mounted
	claimed bool
	stuck   error // of the cgroup
}

func (h *holder) say(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logged = append(h.logged, what)
}

// heldResources are the CPUs, devices and the like of a holder.
type heldResources struct {
	of *holder
}

func (r heldResources) Release(types.UID) { r.of.say("resources") }

// heldClaims are the claims of a holder.
type heldClaims struct {
	prepared
	of *holder
}

func (c heldClaims) Release(pod.Ref)                  { c.of.say("release claims") }
func (c heldClaims) Released(types.UID) (bool, error) { return !c.of.claimed, nil }

func (h *holder) ReducePod(types.UID) error {
	h.say("reduce")
	return h.stuck
}
func (h *holder) Unregister(types.UID) { h.say("objects") }
func (h *holder) Vacate(types.UID)     { h.say("room") }
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
func (h *holder) RemovePod(context.Context, types.UID) error {
	h.say("cgroup")
	return h.stuck
}

// heldVolumes are the volumes of a holder.
type heldVolumes struct {
	prepared
	of *holder
}

func (v heldVolumes) Release(pod.Ref)                  { v.of.say("release volumes") }
func (v heldVolumes) Released(types.UID) (bool, error) { return !v.of.mounted, v.of.busy }

// holding is a worker whose pod holds all of h, and is deleted.
func (m *measured) holding(h *holder, spec *v1.Pod) *worker {
	h.node = &node{}
	m.on(h.node)
	m.cfg.Objects, m.cfg.Status, m.cfg.Cgroups.CgroupRemover, m.cfg.Allocation.Occupancy = h, h, h, h
	m.cfg.Volumes.Releaser = heldVolumes{of: h}
	m.cfg.Claims.Releaser, m.cfg.Resources.ResourceReleaser = heldClaims{of: h}, heldResources{of: h}
	w := m.worker("u", spec)
	if spec != nil {
		spec.DeletionTimestamp = &metav1.Time{Time: m.now}
		m.desired["u"] = struct{ spec, mirror *v1.Pod }{spec: spec}
	}
	w.admission.recovered = true
	return w
}

// releasedOnce runs a turn and its tasks, and returns what was released in them.
func (m *measured) releasedOnce(w *worker, h *holder) []string {
	h.logged = nil
	m.settled(w)
	m.now = m.now.Add(maxPause)
	return h.logged
}

func TestReleaseOrder(t *testing.T) {
	parity.Differs(t, "LIFE-09", "0005")
	parity.ProvesPart(t, 2, "EVIC-38")
	m, h := newMeasured(t), &holder{claimed: true, mounted: true, stuck: errors.New("device or resource busy")}
	w := m.holding(h, podNamed("u", pod.SourceAPI))
	for i, want := range [][]string{
		{"release claims", "lives"}, // as long as a driver has something prepared for it
		{"release claims", "lives"},
		{"resources", "room"},         // and its status waits for that
		{"release volumes", "status"}, // and nothing else while anything is mounted
		{"release volumes", "status"},
		{"objects", "status", "cgroup"},
		{"status", "cgroup"}, // it could not be removed
		{"status", "cgroup"},
		{"finished"},
	} {
		switch i {
		case 2:
			h.claimed = false
		case 5:
			h.mounted = false
		case 7:
			h.stuck = nil
		}
		got := m.releasedOnce(w, h)
		// A node shutdown waits for that, including the unmounting of volumes.
		if w.ends.isReleased() != slices.Contains(want, "finished") {
			t.Errorf("turn %d: the waiters for its end are notified: %t", i, w.ends.isReleased())
		}
		beside := func(s string) bool { return s == "cgroup" } // it is removed by a task, beside the status
		if tasks := slices.ContainsFunc(got, beside); tasks != slices.ContainsFunc(want, beside) {
			t.Errorf("turn %d: %q, want %q", i, got, want)
		}
		if got, want := slices.DeleteFunc(got, beside), slices.DeleteFunc(want, beside); !slices.Equal(got, want) {
			t.Errorf("turn %d: %q, want %q, in this order", i, got, want)
		}
	}
}

// While the volumes of a pod are mounted its cgroup stays, with the least CPU; then it is removed.
func TestCgroupIsReducedWhileVolumesAreMounted(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-20")
	for _, tc := range []struct {
		name    string
		busy    error
		adopted bool
		want    []string
	}{
		{"a volume cannot be unmounted", errors.New("target is busy"), false, []string{"reduce", "reduce", "", "cgroup", ""}},
		{"no source has the pod, and its volumes take a while", nil, true, []string{"reduce", "reduce", "", "cgroup", ""}},
		{"its volumes are just being unmounted", nil, false, []string{"", "", "", "cgroup", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, h := newMeasured(t), &holder{mounted: true, busy: tc.busy, stuck: errors.New("no")}
			var spec *v1.Pod
			if !tc.adopted {
				spec = podNamed("u", pod.SourceAPI)
			}
			w := m.holding(h, spec)
			w.source.adopted = tc.adopted
			m.settled(w) // its resources are released first
			for i, want := range tc.want {
				switch i {
				case 1:
					h.stuck = nil // it is retried until it succeeds, and not again
				case 3:
					h.mounted = false
				}
				var got []string
				for _, s := range m.releasedOnce(w, h) {
					if s == "reduce" || s == "cgroup" {
						got = append(got, s)
					}
				}
				if strings.Join(got, " ") != want {
					t.Errorf("turn %d: %q, want %q", i, got, want)
				}
			}
		})
	}
}
