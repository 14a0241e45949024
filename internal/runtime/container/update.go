package container

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// UpdateResources gives a running container what p says it may use.
func (r *Runner) UpdateResources(ctx context.Context, p *v1.Pod, name, id string) error {
	kind, c, ok := pod.Find(p, name)
	if !ok {
		return fmt.Errorf("update resources of container %s: the pod has none of that name", name)
	}
	_, err := r.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux: containerResources(p, c, kind, r.cpuRules(), r.cfg.Kernel, r.cfg.Node(), r.cfg.SwapBehavior, r.cfg.SingleProcessOOM,
			assignment{exclusive: r.exclusive(p, c)}),
	})
	return err
}

// UpdateSandbox tells the runtime what p says the pod may use together, before it
// is so: the runtime may object. One that does not have the call need not know.
func (r *Runner) UpdateSandbox(ctx context.Context, p *v1.Pod, id string) error {
	resources, overhead := sandboxResources(p, r.cpuRules())
	_, err := r.cfg.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Resources: resources, Overhead: overhead})
	if lacksCall(err) {
		return nil
	}
	return err
}

// lacksCall reports whether the runtime does not have the call. containerd 2.2 says so with the code Unknown
// (containerd pull request 13023).
func lacksCall(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented:
		return true
	case codes.Unknown:
		return strings.Contains(err.Error(), "not implemented")
	}
	return false
}

// MemoryUsage is how many bytes a container uses.
func (r *Runner) MemoryUsage(ctx context.Context, id string) (int64, error) {
	resp, err := r.cfg.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return 0, err
	}
	m := resp.GetStats().GetMemory()
	return int64(max(m.GetUsageBytes().GetValue(), m.GetWorkingSetBytes().GetValue())), nil
}

// MaySwap reports whether the node lets the container swap.
func (r *Runner) MaySwap(p *v1.Pod, c *v1.Container) bool {
	return r.cfg.SwapBehavior == LimitedSwap && r.cfg.Kernel.SwapController && r.cfg.Node().Swap > 0 && maySwap(p, c)
}
