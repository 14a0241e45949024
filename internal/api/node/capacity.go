package node

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
)

// CapacityInput is the input of Capacity.
type CapacityInput struct {
	Machine     machine.Info
	Storage     *machine.Filesystem // of the agent's root directory; nil: no ephemeral storage
	MaxPods     int64
	PodsPerCore int64 // 0: no limit
}

// Capacity returns the capacity of the node.
func Capacity(in CapacityInput) v1.ResourceList {
	pods := in.MaxPods
	if in.PodsPerCore > 0 {
		pods = min(pods, in.PodsPerCore*int64(in.Machine.CPUs))
	}
	c := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(in.Machine.CPUs)*1000, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(in.Machine.Memory), resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
	for size, n := range in.Machine.HugePages {
		page := resource.NewQuantity(int64(size), resource.BinarySI)
		c[v1.ResourceName(v1.ResourceHugePagesPrefix+page.String())] = *resource.NewQuantity(int64(size*n),
			resource.BinarySI)
	}
	if in.Storage != nil {
		c[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(in.Storage.Capacity), resource.BinarySI)
	}
	return c
}

// Allocatable returns what is allocatable to pods: the capacity minus the reserved resources and the hard eviction
// thresholds. Huge pages are subtracted from memory. Reserved resources count even if they are not enforced.
func Allocatable(capacity, reserved, evict v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		for _, less := range []v1.ResourceList{reserved, evict} {
			if l, ok := less[name]; ok {
				left.Sub(l)
			}
		}
		if left.Sign() < 0 {
			left.Set(0)
		}
		out[name] = left
	}
	for name, q := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory := out[v1.ResourceMemory]
			memory.Sub(q)
			if memory.Sign() < 0 {
				memory.Set(0)
			}
			out[v1.ResourceMemory] = memory
		}
	}
	return out
}

// keepExtended adds the extended resources that others have set on the node. They remain until they are removed, and
// are entirely allocatable.
func keepExtended(capacity, allocatable v1.ResourceList, prev v1.NodeStatus) {
	for name, q := range prev.Capacity {
		if _, ours := capacity[name]; !ours && pod.IsExtended(name) {
			capacity[name] = q
			allocatable[name] = q
		}
	}
}
