package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// Runtimes report the stop signal of a container whether the gate is on or off.
func TestStopSignalNeedsGate(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-58")
	term := v1.SIGTERM
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	have := pod.Runtime{
		Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}},
		Containers: []pod.Container{{
			ID:         "c",
			Name:       "main",
			SandboxID:  "s",
			State:      pod.StateRunning,
			StartedAt:  at,
			StopSignal: &term,
		}},
	}
	for _, gate := range []bool{false, true} {
		st := Project(Node{RuntimeName: "containerd", StopSignals: gate},
			Facts{Pod: p, Have: have, Started: at}, v1.PodStatus{}, at)
		if got := st.ContainerStatuses[0].StopSignal; (got != nil) != gate || gate && *got != "SIGTERM" {
			t.Errorf("with the gate %v the stop signal is shown as %q", gate, ptr.Deref(got, ""))
		}
	}
}
