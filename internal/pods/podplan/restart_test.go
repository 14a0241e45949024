package podplan

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// The kernel may kill one process of a container for its memory and leave a shell
// that ends with success.
func TestOOMKilledInitContainerHasFailed(t *testing.T) {
	parity.Proves(t, "LIFE-38")
	killed := exited("i", 0)
	killed.Reason = "OOMKilled"
	for policy, want := range map[v1.RestartPolicy]v1.PodPhase{
		v1.RestartPolicyNever:     v1.PodFailed,
		v1.RestartPolicyOnFailure: v1.PodPending,
		v1.RestartPolicyAlways:    v1.PodPending,
	} {
		p := spec("i : a", policy)
		if got := view(p, have(true, killed)).Phase(false); got != want {
			t.Errorf("with restartPolicy %s the pod is %s, want %s", policy, got, want)
		}
		plan := decide(Input{
			Now:       now,
			Pod:       p,
			Have:      have(true, killed),
			Images:    images(p, 1),
			Readiness: Readiness{NetworkReady: true, VolumesReady: true},
		})
		starts := slices.ContainsFunc(plan.Steps,
			func(s Step) bool { return s.Verb == Start && s.Target == Container("i") })
		if starts != (want == v1.PodPending) {
			t.Errorf("with restartPolicy %s the steps are %v", policy, plan.Steps)
		}
	}
	// Only the exit code of a regular container counts.
	done := exited("a", 0)
	done.Reason = "OOMKilled"
	if got := view(spec("a", v1.RestartPolicyNever), have(true, done)).Phase(false); got != v1.PodSucceeded {
		t.Errorf("a pod whose container ended with 0 is %s", got)
	}
	if !(View{}).Succeeded(pod.Init, exited("i", 0)) {
		t.Error("an init container that ended with 0 has not succeeded")
	}
}
