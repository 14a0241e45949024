package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// An agent that starts after the pod's sandbox has stopped does not see its address. The address of an ended pod stays
// in its status; a pod that is not terminated gets a new one (decision 0134).
func TestEndedPodKeepsAddress(t *testing.T) {
	for _, terminating := range []bool{true, false} {
		f := simple(v1.RestartPolicyNever, pod.Container{ID: "1", State: pod.StateExited})
		f.Have.Sandboxes[0].Ready, f.PodIPs, f.Terminating, f.Down = false, nil, terminating, terminating
		prev := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.7", PodIPs: []v1.PodIP{{IP: "10.0.0.7"}}}
		st := Project(Node{}, f, prev, at)
		if kept := st.PodIP == "10.0.0.7" && len(st.PodIPs) == 1; kept != terminating {
			t.Errorf("terminating %t:  addresses %q %v", terminating, st.PodIP, st.PodIPs)
		}
	}
}
