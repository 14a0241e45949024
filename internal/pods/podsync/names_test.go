package podsync

import (
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

// Static pods of one full name wait in the order in which they came, and one that is removed while it waits is skipped.
func TestPodsOfOneNameStartInOrder(t *testing.T) {
	parity.ProvesPart(t, 3, "SRC-16")
	m := newMeasured(t)
	m.cfg.OnNameFree = func() {}
	workers := map[types.UID]*worker{}
	for _, uid := range []types.UID{"a", "b", "c", "d"} {
		spec := podNamed("web", pod.SourceFile)
		spec.UID = uid
		workers[uid] = m.worker(uid, spec)
	}
	expect := func(when string, first types.UID, asking ...types.UID) {
		t.Helper()
		for range 2 { // to ask again keeps the place
			for _, uid := range asking {
				if got := m.names.claim("web_ns", uid); got != (uid == first) {
					t.Errorf("%s: pod %s may start: %v", when, uid, got)
				}
			}
		}
	}
	expect("when the first has come", "a", "a")
	expect("when three more have come", "a", "d", "b", "c", "a")
	workers["b"].leaveName()
	expect("when one that waits has gone", "a", "c", "d", "a")
	workers["a"].leaveName()
	expect("when the first has ended", "d", "c", "d")
	workers["d"].leaveName()
	expect("when the second has ended", "c", "c")
}

// leftovers are what the runtime lists of pods, some of which could not be read yet.
type leftovers struct {
	*node
	listed map[types.UID]pod.Runtime
	unread map[types.UID]bool
}

func (l *leftovers) UIDs() []types.UID { return slices.Collect(maps.Keys(l.listed)) }

func (l *leftovers) Get(uid types.UID) (pod.Runtime, bool) { return l.listed[uid], !l.unread[uid] }

// A static pod that was replaced while no agent ran may still run, also while its containers cannot be read.
func TestStaticPodWaitsForUnreadPod(t *testing.T) {
	ref := pod.Ref{UID: "old", Namespace: "ns", Name: "web"}
	for _, tc := range []struct {
		name  string
		other *v1.Pod // as a source has the old pod
		read  pod.Runtime
		waits bool // when the old pod was read
	}{
		{
			name:  "it is static",
			read:  pod.Runtime{Ref: ref, Sandboxes: []pod.Sandbox{{ID: "s", Source: pod.SourceFile}}},
			waits: true,
		},
		{
			name: "it is of the API server",
			read: pod.Runtime{Ref: ref, Sandboxes: []pod.Sandbox{{ID: "s", Source: pod.SourceAPI}}},
		},
		{
			name: "it is gone",
			read: pod.Runtime{Ref: pod.Ref{UID: "old"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMeasured(t).on(&node{})
			m.ctx, m.cfg.OnNameFree = t.Context(), func() {}
			l := &leftovers{
				node:   &node{},
				listed: map[types.UID]pod.Runtime{"old": {Ref: ref}},
				unread: map[types.UID]bool{"old": true},
			}
			m.cfg.Observed = l
			spec := podNamed("web", pod.SourceFile)
			spec.UID = "new"
			m.desired["new"] = struct{ spec, mirror *v1.Pod }{spec: spec}
			old, fresh := m.worker("old", nil), m.worker("new", spec)
			t.Cleanup(old.tasks.group.Wait) // its tasks log to the test
			m.turn(old)
			m.turn(fresh)
			if len(fresh.plan.Waits) != 1 || fresh.plan.Waits[0].Kind != podplan.WaitName {
				t.Fatalf("while the old pod is unread, the new one waits for %v", fresh.plan.Waits)
			}
			l.listed["old"], l.unread["old"] = tc.read, false
			m.turn(old)
			if woken := !fresh.mail.empty(); woken == tc.waits {
				t.Errorf("when the old pod was read, the new one is woken: %v", woken)
			}
			in := gatherer{fresh}.observe(m.now)
			if in.NameTaken != tc.waits {
				t.Errorf("when the old pod was read, its name is taken: %v", in.NameTaken)
			}
		})
	}
}

// The API server's pod of the same name is none that a static pod waits for.
func TestStaticPodDoesNotWaitForAPIPod(t *testing.T) {
	m := newMeasured(t).on(&node{})
	m.cfg.Observed = &leftovers{
		node:   &node{},
		listed: map[types.UID]pod.Runtime{"other": {Ref: pod.Ref{UID: "other", Namespace: "ns", Name: "web"}}},
		unread: map[types.UID]bool{"other": true},
	}
	other := podNamed("web", pod.SourceAPI)
	other.UID = "other"
	m.desired["other"] = struct{ spec, mirror *v1.Pod }{spec: other}
	if m.leftOver("web_ns", "new") {
		t.Error("the pod of the API server counts as a static pod of the name")
	}
}
