package cgroup

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Values are limits and weights of one cgroup. A zero field is left as it is.
type Values struct {
	CPUShares uint64
	CPUQuota  int64  // microseconds per period; -1 for none
	CPUPeriod uint64 // microseconds
	Memory    int64  // bytes
	PIDs      int64
	HugePages map[uint64]int64 // bytes, by page size in bytes
}

const (
	minShares   = 2 // the least the kernel accepts
	maxShares   = 262144
	minQuota    = 1000 // microseconds; the least the kernel accepts
	unlimitedHP = 1<<63 - 1
)

// shares turns a CPU request into the kernel's weight.
func shares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*1024/1000, minShares), maxShares))
}

// weight turns v1 shares into a v2 weight on a straight line from 2..262144 to
// 1..10000. The OCI runtime may bend it for containers; pods keep this one.
func weight(shares uint64) uint64 {
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// quota turns a CPU limit into microseconds per period.
func quota(milliCPU int64, period time.Duration) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*period.Microseconds()/1000, minQuota)
}

// PodOptions are what a pod's values depend on beside the pod.
type PodOptions struct {
	CFSQuota  bool          // enforce CPU limits
	CFSPeriod time.Duration // of the quota
	PIDs      int64         // per pod; zero or less for no limit
	PageSizes []uint64      // huge page sizes of the machine, in bytes
	// ExclusiveCPUs lists pods that own whole CPUs; a quota would only stall them.
	ExclusiveCPUs func(*v1.Pod) bool // nil: none
}

// PodValues are the values of a pod's cgroup. A limit holds for the pod as a whole
// only if the pod states one or each of its containers does: otherwise those
// without would be held to what the others leave.
func PodValues(p *v1.Pod, o PodOptions) Values {
	requests := resource.PodRequests(p, resource.PodResourcesOptions{})
	limits := resource.PodLimits(p, resource.PodResourcesOptions{})
	v := Values{
		CPUShares: shares(requests.Cpu().MilliValue()),
		HugePages: hugePages(requests, o.PageSizes),
	}
	if o.PIDs > 0 {
		v.PIDs = o.PIDs
	}
	qos := pod.QOS(p)
	if qos == v1.PodQOSBestEffort {
		v.CPUShares = minShares
		return v
	}
	if qos == v1.PodQOSGuaranteed || pod.Limits(p, v1.ResourceCPU) {
		v.CPUPeriod = uint64(o.CFSPeriod.Microseconds())
		v.CPUQuota = quota(limits.Cpu().MilliValue(), o.CFSPeriod)
		if !o.CFSQuota || o.ExclusiveCPUs != nil && o.ExclusiveCPUs(p) {
			v.CPUQuota = -1
		}
	}
	if qos == v1.PodQOSGuaranteed || pod.Limits(p, v1.ResourceMemory) {
		v.Memory = limits.Memory().Value()
	}
	return v
}

// hugePages limits every page size of the machine: what was not asked for is not
// to be had.
func hugePages(requests v1.ResourceList, sizes []uint64) map[uint64]int64 {
	if len(sizes) == 0 {
		return nil
	}
	out := map[uint64]int64{}
	for _, s := range sizes {
		out[s] = 0
	}
	for name, q := range requests {
		if size, ok := pageSize(name); ok {
			out[size] = q.Value()
		}
	}
	return out
}

// BurstableCPU is the CPU, in thousandths, that the burstable pods request
// together; it is what their common parent is worth.
func BurstableCPU(pods []*v1.Pod) int64 {
	var sum int64
	for _, p := range pods {
		if pod.QOS(p) == v1.PodQOSBurstable {
			req := resource.PodRequests(p, resource.PodResourcesOptions{})
			sum += req.Cpu().MilliValue()
		}
	}
	return sum
}

// NodeValues are the values of the cgroup of all pods: what the node has, less
// what is kept for the system. The memory at which pods are evicted is not taken
// off: eviction must come before the kernel's own killing. maxPIDs is the
// machine's limit.
func NodeValues(capacity, reserved v1.ResourceList, maxPIDs int64) Values {
	left := func(name v1.ResourceName) int64 {
		have, kept := capacity[name], reserved[name]
		have.Sub(kept)
		if name == v1.ResourceCPU {
			return max(have.MilliValue(), 0)
		}
		return max(have.Value(), 0)
	}
	v := Values{CPUShares: shares(left(v1.ResourceCPU)), Memory: left(v1.ResourceMemory)}
	if maxPIDs > 0 {
		kept := reserved[ResourcePIDs]
		v.PIDs = max(maxPIDs-kept.Value(), 1)
	}
	for name := range capacity {
		if size, ok := pageSize(name); ok {
			if v.HugePages == nil {
				v.HugePages = map[uint64]int64{}
			}
			v.HugePages[size] = left(name)
		}
	}
	return v
}

// ReservedValues are the values of the cgroup of programs for which so much is
// reserved: what is kept from pods is all that they may have. Compressible limits
// nothing for which they would have to end.
func ReservedValues(reserved v1.ResourceList, compressible bool) Values {
	var v Values
	if q, ok := reserved[v1.ResourceCPU]; ok {
		v.CPUShares = shares(q.MilliValue())
	}
	if compressible {
		return v
	}
	if q, ok := reserved[v1.ResourceMemory]; ok {
		v.Memory = q.Value()
	}
	if q, ok := reserved[ResourcePIDs]; ok {
		v.PIDs = q.Value()
	}
	return v
}

// ResourcePIDs is the name under which process ids are reserved.
const ResourcePIDs v1.ResourceName = "pid"

// classValues are those of a QoS class before it is known what its pods request. Its huge pages have no limit: each pod
// has one of its own.
func classValues(pageSizes []uint64) Values {
	v := Values{CPUShares: minShares, HugePages: map[uint64]int64{}}
	for _, size := range pageSizes {
		v.HugePages[size] = unlimitedHP
	}
	return v
}
