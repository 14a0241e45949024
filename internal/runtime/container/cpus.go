package container

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// KeepToCPUs keeps a running container to CPUs, named as cpuset files take them. All
// else stays as it is.
func (r *Runner) KeepToCPUs(ctx context.Context, id, cpus string) error {
	_, err := r.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux:       &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
	})
	return err
}

// exclusive reports whether the container has CPUs that nobody else may use: a quota
// would only stall it.
func (r *Runner) exclusive(p *v1.Pod, c *v1.Container) bool {
	return r.cfg.ExclusiveCPUs != nil && r.cfg.ExclusiveCPUs(p, c)
}

// anyExclusive reports whether a container of the pod has CPUs that nobody else may use.
func (r *Runner) anyExclusive(p *v1.Pod) bool {
	for kind, c := range pod.Containers(p) {
		if kind != pod.Ephemeral && r.exclusive(p, c) {
			return true
		}
	}
	return false
}
