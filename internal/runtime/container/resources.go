package container

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// Limits of the CPU controller of cgroup v1.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // µs
)

// cpuRules is the node's configuration of CPU limits.
type cpuRules struct {
	quota  bool
	period int64 // µs
}

func (r *Runner) cpuRules() cpuRules {
	return cpuRules{quota: r.cfg.CPUQuota, period: r.cfg.CPUQuotaPeriod.Microseconds()}
}

// shares converts a CPU request to cgroup CPU shares.
func shares(milliCPU int64) int64 {
	return min(max(milliCPU*1024/1000, minShares), maxShares)
}

// quota converts a CPU limit to the CFS quota for a period. No limit is 0.
func quota(milliCPU, period int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period/1000, minQuota)
}

// limits converts requests and limits to the CRI message. A missing CPU request, unlike one of
// zero, defaults to the limit.
func (c cpuRules) limits(cpuRequest, cpuLimit, memory *resource.Quantity) *runtimeapi.LinuxContainerResources {
	if cpuRequest == nil {
		cpuRequest = cpuLimit
	}
	res := &runtimeapi.LinuxContainerResources{
		CpuShares:          shares(milli(cpuRequest)),
		MemoryLimitInBytes: value(memory),
	}
	if c.quota {
		res.CpuPeriod = c.period
		res.CpuQuota = quota(milli(cpuLimit), c.period)
	}
	return res
}

func milli(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.MilliValue()
}

func value(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

// get returns the quantity of that name, nil if the list has none.
func get(l v1.ResourceList, name v1.ResourceName) *resource.Quantity {
	if q, ok := l[name]; ok {
		return &q
	}
	return nil
}

// sandboxResources returns the resources of the whole pod, for runtimes that size sandboxes by
// them, and the overhead separately. A pod with exclusive CPUs has no CFS quota. With oomGroup, an
// OOM kill takes all processes of the cgroup.
func sandboxResources(
	p *v1.Pod, cpu cpuRules, exclusive, oomGroup bool,
) (resources, overhead *runtimeapi.LinuxContainerResources) {
	o := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	req, lim := resourcehelper.PodRequests(p, o), resourcehelper.PodLimits(p, o)
	resources = cpu.limits(get(req, v1.ResourceCPU), get(lim, v1.ResourceCPU), get(lim, v1.ResourceMemory))
	if exclusive && cpu.quota {
		resources.CpuQuota = -1
	}
	if oomGroup {
		unified(resources, "memory.oom.group", "1")
	}
	return resources, overheadResources(p, cpu, oomGroup)
}

// overheadResources returns the resources of the pod's overhead.
func overheadResources(p *v1.Pod, cpu cpuRules, oomGroup bool) *runtimeapi.LinuxContainerResources {
	if p.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	c := get(p.Spec.Overhead, v1.ResourceCPU)
	out := cpu.limits(c, c, get(p.Spec.Overhead, v1.ResourceMemory))
	if oomGroup {
		unified(out, "memory.oom.group", "1")
	}
	return out
}

// oomGroup reports whether an OOM kill takes all processes of the cgroup. Only cgroup v2 supports
// it.
func (r *Runner) oomGroup() bool { return r.cfg.Kernel.CgroupV2 && !r.cfg.SingleProcessOOM }

// assignment is what the CPU manager and the memory manager assigned to a container.
type assignment struct {
	cpus, mems string // cpuset lists; empty for no restriction
	exclusive  bool   // the CPUs are exclusive, so no CFS quota is set
}

// containerResources returns the resources of one container.
func containerResources(
	p *v1.Pod, c *v1.Container, kind pod.Kind, cpu cpuRules, k Kernel, node NodeFacts,
	swap string, singleOOM bool, a assignment,
) *runtimeapi.LinuxContainerResources {
	res := cpu.limits(get(c.Resources.Requests, v1.ResourceCPU),
		limitOrPods(p, c, v1.ResourceCPU), limitOrPods(p, c, v1.ResourceMemory))
	if a.exclusive && cpu.quota {
		res.CpuQuota = -1
	}
	res.CpusetCpus, res.CpusetMems = a.cpus, a.mems
	res.OomScoreAdj = oomScore(p, c, kind, node.Memory)
	res.HugepageLimits = hugePageLimits(c.Resources.Limits, p.Spec.Resources, k.HugePageSizes)
	if k.CgroupV2 && !singleOOM {
		unified(res, "memory.oom.group", "1")
	}
	limitSwap(res, p, c, k, node, swap)
	return res
}

// limitOrPods returns the container's limit, or else the pod-level limit.
func limitOrPods(p *v1.Pod, c *v1.Container, name v1.ResourceName) *resource.Quantity {
	if q := get(c.Resources.Limits, name); q != nil && !q.IsZero() {
		return q
	}
	if p.Spec.Resources != nil {
		return get(p.Spec.Resources.Limits, name)
	}
	return nil
}

func unified(res *runtimeapi.LinuxContainerResources, file, value string) {
	if res.Unified == nil {
		res.Unified = map[string]string{}
	}
	res.Unified[file] = value
}

// hugePageLimits has an entry for every page size of the kernel. A size that neither the container
// nor the pod requests is limited to zero.
func hugePageLimits(
	limits v1.ResourceList, whole *v1.ResourceRequirements, sizes []string,
) []*runtimeapi.HugepageLimit {
	asked := map[string]uint64{}
	ask := func(limits v1.ResourceList) {
		for name, q := range limits {
			if size, ok := hugePageSize(name); ok {
				asked[size] = uint64(q.Value())
			}
		}
	}
	if whole != nil {
		ask(whole.Limits)
	}
	ask(limits) // the container's limits take precedence
	var out []*runtimeapi.HugepageLimit
	for _, s := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: s, Limit: asked[s]})
	}
	return out
}

// hugePageSize converts hugepages-2Mi to 2MB, the name in cgroup files.
func hugePageSize(name v1.ResourceName) (string, bool) {
	const prefix = v1.ResourceHugePagesPrefix
	if len(name) <= len(prefix) || string(name[:len(prefix)]) != prefix {
		return "", false
	}
	q, err := resource.ParseQuantity(string(name[len(prefix):]))
	if err != nil {
		return "", false
	}
	n, units := q.Value(), []string{"B", "KB", "MB", "GB", "TB", "PB"}
	u := 0
	for n >= 1024 && n%1024 == 0 && u < len(units)-1 {
		n, u = n/1024, u+1
	}
	return strconv.FormatInt(n, 10) + units[u], true
}

// limitSwap sets the swap limit. On cgroup v1 the limit covers memory and swap together, so the
// memory limit means no swap; cgroup v2 has a file for swap alone. Only containers of burstable
// pods whose memory request is below the limit may swap, in proportion to their request.
func limitSwap(
	res *runtimeapi.LinuxContainerResources, p *v1.Pod, c *v1.Container, k Kernel, node NodeFacts, behavior string,
) {
	if !k.SwapController {
		return
	}
	if !k.CgroupV2 {
		res.MemorySwapLimitInBytes = res.MemoryLimitInBytes
		return
	}
	var bytes int64
	if behavior == LimitedSwap && maySwap(p, c) && node.Memory > 0 {
		share := float64(value(get(c.Resources.Requests, v1.ResourceMemory))) / float64(node.Memory)
		bytes = int64(share * float64(node.Swap))
	}
	unified(res, "memory.swap.max", strconv.FormatInt(bytes, 10))
}

func maySwap(p *v1.Pod, c *v1.Container) bool {
	if pod.QOS(p) != v1.PodQOSBurstable || pod.IsCritical(p) {
		return false
	}
	req := get(c.Resources.Requests, v1.ResourceMemory)
	if req == nil || req.IsZero() {
		return false
	}
	lim := get(c.Resources.Limits, v1.ResourceMemory)
	return lim == nil || lim.Cmp(*req) != 0
}
