package container

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// UpdateResources updates a running container to the resources that p specifies.
func (r *Runner) UpdateResources(ctx context.Context, p *v1.Pod, name, id string) error {
	kind, c, ok := pod.Find(p, name)
	if !ok {
		return fmt.Errorf("update resources of container %s: the pod has none of that name", name)
	}
	_, err := r.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux: containerResources(p, c, kind, r.cpuRules(), r.cfg.Kernel, r.cfg.Node(), r.cfg.SwapBehavior,
			r.cfg.SingleProcessOOM,
			assignment{exclusive: r.exclusive(p, c)}),
	})
	return err
}

// PodSize holds the limits of a pod's cgroup. -1 means no limit.
type PodSize struct {
	Shares, Quota, Period, Memory int64
}

// UpdateSandbox notifies the runtime of the limits that the pod's cgroup is about to have. The
// runtime may reject them. A runtime that does not implement the call accepts them.
func (r *Runner) UpdateSandbox(ctx context.Context, p *v1.Pod, id string, s PodSize) error {
	_, err := r.cfg.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: id,
		Resources:    s.without(p.Spec.Overhead).toCRI(r.cfg.Kernel.CgroupV2),
		Overhead:     overheadResources(p, r.cpuRules(), r.oomGroup()),
	})
	if notImplemented(err) {
		return nil
	}
	return err
}

// without subtracts the overhead, which has its own field in the request. Unlimited stays
// unlimited.
func (s PodSize) without(overhead v1.ResourceList) PodSize {
	if cpu := milli(get(overhead, v1.ResourceCPU)); cpu > 0 {
		if s.Quota > 0 {
			s.Quota -= quota(cpu, s.Period)
		}
		s.Shares = shares((s.Shares*1000+1023)/1024 - cpu)
	}
	if memory := value(get(overhead, v1.ResourceMemory)); memory > 0 && s.Memory > 0 {
		s.Memory -= memory
	}
	return s
}

// toCRI converts the size to a CRI message. Unlimited memory is the maximum that the kernel shows
// on cgroup v1, and -1 on v2.
func (s PodSize) toCRI(v2 bool) *runtimeapi.LinuxContainerResources {
	if s.Memory < 0 && !v2 {
		page := int64(os.Getpagesize())
		s.Memory = math.MaxInt64 / page * page
	}
	return &runtimeapi.LinuxContainerResources{
		CpuShares:          s.Shares,
		CpuQuota:           s.Quota,
		CpuPeriod:          s.Period,
		MemoryLimitInBytes: s.Memory,
	}
}

// notImplemented reports whether the runtime does not implement the call. containerd 2.2 returns
// the code Unknown (containerd pull request 13023).
func notImplemented(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented:
		return true
	case codes.Unknown:
		return strings.Contains(err.Error(), "not implemented")
	}
	return false
}

// MemoryUsage returns the memory usage of a container in bytes.
func (r *Runner) MemoryUsage(ctx context.Context, id string) (int64, error) {
	resp, err := r.cfg.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return 0, err
	}
	m := resp.GetStats().GetMemory()
	return int64(max(m.GetUsageBytes().GetValue(), m.GetWorkingSetBytes().GetValue())), nil
}

// MaySwap reports whether the container may use swap.
func (r *Runner) MaySwap(p *v1.Pod, c *v1.Container) bool {
	return r.cfg.SwapBehavior == LimitedSwap && r.cfg.Kernel.SwapController && r.cfg.Node().Swap > 0 && maySwap(p, c)
}
