package container

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// SetCPUs restricts a running container to the given CPUs, in cpuset list format. No other resource
// changes.
func (r *Runner) SetCPUs(ctx context.Context, id, cpus string) error {
	_, err := r.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux:       &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
	})
	return err
}

// exclusive reports whether the CPU manager assigned exclusive CPUs to the container. Such a
// container gets no CFS quota: a quota would only throttle it.
func (r *Runner) exclusive(p *v1.Pod, c *v1.Container) bool {
	return r.cfg.ExclusiveCPUs != nil && r.cfg.ExclusiveCPUs(p, c)
}

// anyExclusive reports whether any container of the pod has exclusive CPUs.
func (r *Runner) anyExclusive(p *v1.Pod) bool {
	for kind, c := range pod.Containers(p) {
		if kind != pod.Ephemeral && r.exclusive(p, c) {
			return true
		}
	}
	return false
}
