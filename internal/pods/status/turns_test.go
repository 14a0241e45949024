package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// When a pod has ended, containers that the runtime does not have are shown as terminated if they may
// have been created, at least the first init container.
func TestUncreatedContainersOfEndedPod(t *testing.T) {
	done := func(name string) pod.Container {
		return pod.Container{ID: name, Name: name, SandboxID: "s", State: pod.StateExited}
	}
	for _, tc := range []struct {
		name  string
		have  []pod.Container
		ended map[string]bool // by container: whether its status is terminated
	}{
		{"nothing was made", nil, map[string]bool{"one": true, "two": false, "main": false}},
		{"the first has succeeded", []pod.Container{done("one")}, map[string]bool{"one": true, "two": false, "main": false}},
		{"the first was removed", []pod.Container{done("two")}, map[string]bool{"one": true, "two": true, "main": true}},
		{"all have succeeded", []pod.Container{done("one"), done("two")},
			map[string]bool{"one": true, "two": true, "main": true}},
	} {
		f := simple(v1.RestartPolicyAlways)
		f.Pod.Spec.InitContainers = []v1.Container{{Name: "one"}, {Name: "two"}}
		f.Pod.Spec.Containers[0].Name = "main"
		f.Have = pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s"}}, Containers: tc.have}
		f.Terminating, f.Down = true, true
		f.Override = &podplan.Override{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "late"}
		st := Project(Node{}, f, v1.PodStatus{}, time.Now())
		for _, cs := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
			if got := cs.State.Terminated != nil; got != tc.ended[cs.Name] {
				t.Errorf("%s: %s has ended: %v, want %v", tc.name, cs.Name, got, tc.ended[cs.Name])
			}
			if lost := cs.State.Terminated; lost != nil && cs.ContainerID == "" &&
				(lost.ExitCode != 137 || lost.Reason != "ContainerStatusUnknown") {
				t.Errorf("%s: %s ended with %d %s", tc.name, cs.Name, lost.ExitCode, lost.Reason)
			}
		}
	}
}
