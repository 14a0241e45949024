package status

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestTerminationMessagesShareLimit(t *testing.T) {
	parity.Proves(t, "LIFE-93")
	of := func(containers int, message string) v1.PodStatus {
		f := simple(v1.RestartPolicyNever)
		f.Pod.Spec.Containers, f.Have.Containers = nil, nil
		for i := range containers {
			name := fmt.Sprintf("c%02d", i)
			c := v1.Container{Name: name, Image: "i"}
			if i%2 == 0 {
				f.Pod.Spec.Containers = append(f.Pod.Spec.Containers, c)
			} else {
				f.Pod.Spec.InitContainers = append(f.Pod.Spec.InitContainers, c)
			}
			for attempt := 1; attempt >= 0; attempt-- { // and the instance before
				f.Have.Containers = append(f.Have.Containers, pod.Container{
					ID:        fmt.Sprintf("%s-%d", name, attempt),
					Name:      name,
					SandboxID: "s",
					Attempt:   attempt,
					State:     pod.StateExited,
					Message:   message,
				})
			}
		}
		return Project(Node{RuntimeName: "containerd"}, f, v1.PodStatus{}, at)
	}
	full := strings.Repeat("x", 4096)
	for _, tc := range []struct {
		containers int
		message    string
		want       int
	}{
		{1, full, 4096},
		{3, full, 4096},
		{4, full, 3072},
		{12, full, 1024},
		{12, "short", 5},
		{4, strings.Repeat("é", 1537) + "!", 3072},
		{4, "x" + strings.Repeat("é", 1537), 3071}, // no half of a character
	} {
		st := of(tc.containers, tc.message)
		all := append(st.InitContainerStatuses, st.ContainerStatuses...)
		if len(all) != tc.containers {
			t.Fatalf("%d statuses, want %d", len(all), tc.containers)
		}
		for _, cs := range all {
			now, last := cs.State.Terminated.Message, cs.LastTerminationState.Terminated.Message
			if len(now) != tc.want || len(last) != tc.want || !strings.HasPrefix(tc.message, now) {
				t.Errorf("%d containers with %d bytes each: %s says %d bytes, and %d before",
					tc.containers, len(tc.message), cs.Name, len(now), len(last))
			}
		}
	}
}
