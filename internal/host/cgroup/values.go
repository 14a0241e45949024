package cgroup

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Values are limits and weights of a cgroup. Zero fields are not changed.
type Values struct {
	CPUShares uint64
	CPUQuota  int64  // microseconds per period; -1 for none
	CPUPeriod uint64 // microseconds
	Memory    int64  // bytes
	PIDs      int64
	HugePages map[uint64]int64 // bytes, by page size in bytes
}

const (
	minShares   = 2 // minimum of the kernel
	maxShares   = 262144
	minQuota    = 1000 // microseconds; minimum of the kernel
	unlimitedHP = 1<<63 - 1
)

// shares converts a CPU request to CPU shares.
func shares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*1024/1000, minShares), maxShares))
}

// weight converts v1 shares to a v2 weight, linearly from 2..262144 to 1..10000. The OCI runtime may use another
// formula for containers.
func weight(shares uint64) uint64 {
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// quota converts a CPU limit to microseconds per period.
func quota(milliCPU int64, period time.Duration) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*period.Microseconds()/1000, minQuota)
}

// PodOptions are the configuration on which the values of pods depend.
type PodOptions struct {
	CFSQuota  bool          // enforce CPU limits
	CFSPeriod time.Duration // of the quota
	PIDs      int64         // per pod; zero or negative: no limit
	PageSizes []uint64      // huge page sizes of the machine, in bytes
	// ExclusiveCPUs reports whether a pod has exclusive CPUs, and therefore no quota.
	ExclusiveCPUs func(*v1.Pod) bool // nil: none
}

// PodValues returns the values of a pod's cgroup. A limit applies to the pod only if the pod has one or each of its
// containers does, because otherwise it would also limit containers without one.
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

// hugePages returns limits for all page sizes of the machine. Without a request the limit is 0.
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

// BurstableCPU returns the sum of CPU requests of burstable pods, in millicores.
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

// NodeValues returns the values of the cgroup of all pods: the capacity minus reserved resources. The eviction
// threshold of memory is not subtracted, because eviction has to come before an OOM kill. maxPIDs is the limit of the
// machine.
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

// ReservedValues returns the values of the cgroup of daemons for which resources are reserved. With compressible only
// compressible resources are limited.
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

// ResourcePIDs is the name of reserved process IDs.
const ResourcePIDs v1.ResourceName = "pid"

// classValues returns the initial values of a QoS class. Its huge pages are not limited, because those of each pod are.
func classValues(pageSizes []uint64) Values {
	v := Values{CPUShares: minShares, HugePages: map[uint64]int64{}}
	for _, size := range pageSizes {
		v.HugePages[size] = unlimitedHP
	}
	return v
}
