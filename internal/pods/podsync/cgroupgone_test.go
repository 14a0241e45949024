package podsync

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

// The containers of a pod without a cgroup are stopped and started again in a new one, because the pod's limits do not
// apply to them. If the cgroup is only missing in part, it is completed. If no container runs, it is created.
func TestMissingPodCgroup(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-21")
	running := pod.Container{
		ID:        "c1",
		SandboxID: "s1",
		Name:      "main",
		State:     pod.StateRunning,
		Hash:      pod.Hash(&v1.Container{Name: "main"}),
	}
	ended := running
	ended.State = pod.StateExited
	for _, tc := range []struct {
		name       string
		container  pod.Container
		cgroup     fakeCgroups
		cgroupGone bool
		logged     []string
	}{
		{"it is there", running, fakeCgroups{}, false, nil},
		{"it is gone, and a container runs", running, fakeCgroups{gone: true}, true, nil},
		{"a part of it is gone", running, fakeCgroups{gone: true, partly: true}, false, []string{"make"}},
		{"it is gone, and nothing runs", ended, fakeCgroups{gone: true}, false, []string{"make"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var logged []string
			tc.cgroup.logged = &logged
			m := newMeasured(t)
			p := podNamed("u", pod.SourceAPI)
			p.Spec.Containers = []v1.Container{{Name: "main"}}
			m.cfg.Cgroups.CgroupMaker, m.cfg.Cgroups.CgroupResizer = &tc.cgroup, &tc.cgroup
			m.cfg.Runtime.Updater, m.cfg.Runtime.Relister = updatedContainers{logged: &logged}, refreshed{}
			a := &forced{force: p}
			m.cfg.Allocation.Allocated, m.cfg.Allocation.Actuation, m.cfg.Allocation.Resizes = a, a, a
			w := m.worker("u", p)
			have := pod.Runtime{
				Sandboxes:  []pod.Sandbox{{ID: "s1", Ready: true, IPs: []string{"10.0.0.1"}}},
				Containers: []pod.Container{tc.container},
			}
			decide := func() podplan.Plan {
				in := podplan.Input{
					Now:       m.now,
					Pod:       p,
					Have:      have,
					Recovered: true,
					Admission: podplan.Admission{State: podplan.Admitted},
					Readiness: podplan.Readiness{NetworkReady: true, VolumesReady: true},
				}
				in.Resize = gatherer{w}.needOf(&in)
				in.SandboxWithoutCgroup = w.sandboxes.cgroupGone
				plan := podplan.Decide(in)
				for _, s := range plan.Steps {
					if s.Verb == podplan.Resize {
						res, err := performer{w: w, in: &in}.resize()(t.Context())
						if err != nil {
							t.Error(err)
						}
						res.outcome.apply(w)
					}
				}
				return plan
			}
			decide()
			plan := decide()
			stops := slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool {
				return s.Verb == podplan.Stop && s.Target == podplan.Instance("c1")
			})
			if given := w.sandboxes.cgroupGone == "s1"; stops != tc.cgroupGone || given != tc.cgroupGone ||
				!slices.Equal(logged, tc.logged) {
				t.Errorf("stopped: %t, want %t; asked for %q, want %q; steps %+v", stops, tc.cgroupGone, logged,
					tc.logged, plan.Steps)
			}
			if !tc.cgroupGone {
				return
			}
			// The cgroup is not checked again, and the sandbox is stopped once its container has ended.
			if slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool { return s.Verb == podplan.Resize }) {
				t.Error("what is given up is looked at again")
			}
			have.Containers[0] = ended
			plan = decide()
			if !slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool {
				return s.Verb == podplan.StopSandbox && s.Target == podplan.Sandbox("s1")
			}) {
				t.Errorf("the sandbox stays: %+v", plan.Steps)
			}
		})
	}
}
