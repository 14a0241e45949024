package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
)

// volumeMounts are shown before a container is created, resources and allocatedResources
// after. An ephemeral container has no probes, and so is neither started nor ready.
func TestFieldsOfUncreatedAndEphemeralContainers(t *testing.T) {
	spec := v1.Container{
		Name:         "main",
		VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true}},
		Resources:    v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("5m")}},
	}
	extra := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "extra"}}
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers:          []v1.Container{spec},
		EphemeralContainers: []v1.EphemeralContainer{extra},
	}}
	probes := map[string]Probe{"c": {Started: true, Ready: true}, "e": {Started: true, Ready: true}}
	have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
	for _, created := range []bool{false, true} {
		if created {
			have.Containers = []pod.Container{
				{ID: "c", Name: "main", SandboxID: "s", State: pod.StateRunning, StartedAt: at},
				{ID: "e", Name: "extra", SandboxID: "s", State: pod.StateRunning, StartedAt: at},
			}
		}
		st := Project(Node{RuntimeName: "containerd"},
			Facts{Pod: p, Have: have, Started: at, Probes: probes}, v1.PodStatus{}, at)
		main, extra := st.ContainerStatuses[0], st.EphemeralContainerStatuses[0]
		if len(main.VolumeMounts) != 1 || main.VolumeMounts[0].MountPath != "/v" ||
			*main.VolumeMounts[0].RecursiveReadOnly != "Disabled" {
			t.Errorf("created %v: mounts %+v, want /v, not recursively read-only", created, main.VolumeMounts)
		}
		if (main.Resources != nil) != created || (main.AllocatedResources != nil) != created {
			t.Errorf("created %v: resources %v, allocated %v", created, main.Resources, main.AllocatedResources)
		}
		if main.Started == nil || *main.Started != created || main.Ready != created {
			t.Errorf("created %v: started %v, ready %v", created, main.Started, main.Ready)
		}
		if extra.Started != nil || extra.Ready {
			t.Errorf("created %v: of the ephemeral container, started %v and ready %v are shown",
				created, extra.Started, extra.Ready)
		}
		if (extra.Resources != nil) != created || extra.AllocatedResources != nil {
			t.Errorf("created %v: of the ephemeral container, resources %v, allocated %v",
				created, extra.Resources, extra.AllocatedResources)
		}
	}
}
