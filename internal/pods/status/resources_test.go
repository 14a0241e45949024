package status

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
)

// The pod's limits in its status are those that apply to the pod as a whole, in every phase: stated by the pod, or by
// each of its containers, init containers included.
func TestPodResourcesInStatus(t *testing.T) {
	list := func(pairs ...string) v1.ResourceList {
		out := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	c := func(name string, requests, limits v1.ResourceList) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	for _, tc := range []struct {
		name             string
		spec             v1.PodSpec
		requests, limits map[v1.ResourceName]string
	}{
		{
			name: "every container limits both",
			spec: v1.PodSpec{Containers: []v1.Container{
				c("a", list("cpu", "100m", "memory", "32Mi"), list("cpu", "200m", "memory", "64Mi")),
				c("b", list("cpu", "50m"), list("cpu", "100m", "memory", "16Mi")),
			}},
			requests: map[v1.ResourceName]string{"cpu": "150m", "memory": "32Mi"},
			limits:   map[v1.ResourceName]string{"cpu": "300m", "memory": "80Mi"},
		},
		{
			name: "one container does not limit its CPU",
			spec: v1.PodSpec{Containers: []v1.Container{
				c("a", nil, list("cpu", "200m", "memory", "64Mi")),
				c("b", nil, list("memory", "16Mi")),
			}},
			limits: map[v1.ResourceName]string{"memory": "80Mi"},
		},
		{
			name: "an init container does not limit its memory",
			spec: v1.PodSpec{
				InitContainers: []v1.Container{c("init", nil, list("cpu", "500m"))},
				Containers:     []v1.Container{c("a", nil, list("cpu", "200m", "memory", "64Mi"))},
			},
			limits: map[v1.ResourceName]string{"cpu": "500m"},
		},
		{
			name: "the pod states CPU, its containers memory",
			spec: v1.PodSpec{
				Resources: &v1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2")},
				Containers: []v1.Container{
					c("a", list("memory", "32Mi"), list("memory", "64Mi")),
					c("b", list("memory", "16Mi"), nil),
				},
			},
			requests: map[v1.ResourceName]string{"cpu": "1", "memory": "48Mi"},
			limits:   map[v1.ResourceName]string{"cpu": "2"},
		},
	} {
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded} {
			t.Run(tc.name+", "+string(phase), func(t *testing.T) {
				p := &v1.Pod{Spec: tc.spec, Status: v1.PodStatus{Phase: phase}}
				st := Project(Node{}, Facts{Pod: p, Have: pod.Runtime{}}, v1.PodStatus{}, time.Unix(0, 0))
				shown := func(l v1.ResourceList) map[v1.ResourceName]string {
					out := map[v1.ResourceName]string{}
					for name, q := range l {
						out[name] = q.String()
					}
					return out
				}
				if got := shown(st.Resources.Requests); !maps.Equal(got, tc.requests) {
					t.Errorf("requests %v, want %v", got, tc.requests)
				}
				if got := shown(st.Resources.Limits); !maps.Equal(got, tc.limits) {
					t.Errorf("limits %v, want %v", got, tc.limits)
				}
			})
		}
	}
}
