package podsync

import (
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

// admittedAlready grants what is asked for, to a pod that was admitted long ago.
type admittedAlready struct{ forced }

func (*admittedAlready) Gap(*v1.Pod, pod.Runtime) allocation.Gap { return allocation.Gap{} }
func (*admittedAlready) Progress(*v1.Pod, bool)                  {}
func (*admittedAlready) Failing(types.UID) bool                  { return false }

// A pod that runs without a cgroup is stopped and begins anew, in one: nothing limits
// what runs in it. Where something of the cgroup is left it is mended, and a pod of
// which nothing runs has it made.
func TestAPodWithoutItsCgroupBeginsAnew(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-21")
	running := pod.Container{ID: "c1", SandboxID: "s1", Name: "main", State: pod.StateRunning, Hash: pod.Hash(&v1.Container{Name: "main"})}
	ended := running
	ended.State = pod.StateExited
	for _, tc := range []struct {
		name      string
		container pod.Container
		cgroup    fakeCgroups
		uprooted  bool
		said      []string
	}{
		{"it is there", running, fakeCgroups{}, false, nil},
		{"it is gone, and a container runs", running, fakeCgroups{gone: true}, true, nil},
		{"a part of it is gone", running, fakeCgroups{gone: true, partly: true}, false, []string{"make"}},
		{"it is gone, and nothing runs", ended, fakeCgroups{gone: true}, false, []string{"make"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said []string
			tc.cgroup.said = &said
			m := newMeasured(t)
			p := podNamed("u", pod.SourceAPI)
			p.Spec.Containers = []v1.Container{{Name: "main"}}
			m.cfg.Cgroups, m.cfg.Containers, m.cfg.Observed = &tc.cgroup, updatedContainers{said: &said}, refreshed{}
			m.cfg.Allocation = &admittedAlready{forced{force: p}}
			w := m.worker("u", p)
			w.admitted = true
			have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s1", Ready: true, IPs: []string{"10.0.0.1"}}}, Containers: []pod.Container{tc.container}}

			var tasks sync.WaitGroup
			w.resize(t.Context(), &tasks, w.gap(have, nil))
			tasks.Wait()
			have = w.markUprooted(have)
			plan := podplan.Decide(podplan.Input{Now: m.now, Pod: p, Have: have, NetworkReady: true, VolumesReady: true})
			stops := slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool { return s.Verb == podplan.Stop && s.Target == "c1" })
			if stops != tc.uprooted || have.Sandboxes[0].Uprooted != tc.uprooted || !slices.Equal(said, tc.said) {
				t.Errorf("stopped: %t, want %t; asked for %q, want %q; steps %+v", stops, tc.uprooted, said, tc.said, plan.Steps)
			}
			if !tc.uprooted {
				return
			}
			// It is not looked at again, and the sandbox goes once its container has ended.
			if g := w.gap(have, nil); g.due {
				t.Error("what is given up is looked at again")
			}
			have.Containers[0] = ended
			plan = podplan.Decide(podplan.Input{Now: m.now, Pod: p, Have: have, NetworkReady: true, VolumesReady: true})
			if !slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool { return s.Verb == podplan.StopSandbox && s.Target == "s1" }) {
				t.Errorf("the sandbox stays: %+v", plan.Steps)
			}
		})
	}
}
