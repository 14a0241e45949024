package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
)

// The overhead of a pod is part of its allocated and of its actuated resources.
func TestOverheadIsPartOfPodResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	p := &v1.Pod{Spec: v1.PodSpec{
		Overhead: list("250m", "64Mi"),
		Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: list("100m", "32Mi"), Limits: list("200m", "128Mi")},
		}},
	}}
	have := pod.Runtime{Containers: []pod.Container{{ID: "c", Name: "main", State: pod.StateCreated}}}
	st := Project(Node{}, Facts{Pod: p, Have: have}, v1.PodStatus{}, time.Unix(0, 0))
	for _, tc := range []struct {
		what        string
		got         v1.ResourceList
		cpu, memory string
	}{
		{"allocated", st.AllocatedResources, "350m", "96Mi"},
		{"requests in force", st.Resources.Requests, "350m", "96Mi"},
		{"limits in force", st.Resources.Limits, "450m", "192Mi"},
		{"allocated to the container", st.ContainerStatuses[0].AllocatedResources, "100m", "32Mi"},
	} {
		if tc.got.Cpu().String() != tc.cpu || tc.got.Memory().String() != tc.memory {
			t.Errorf("%s: cpu %v, memory %v; want %s and %s", tc.what, tc.got.Cpu(), tc.got.Memory(), tc.cpu, tc.memory)
		}
	}
}
