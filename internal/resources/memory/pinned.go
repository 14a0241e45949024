package memory

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"keelson/internal/runtime/cri/inventory"
)

// PinnedOf returns the memory of NUMA nodes that running containers are pinned to. Only containers of Guaranteed pods
// are pinned, so the memory that is assigned to a container equals its limit.
func PinnedOf(running []inventory.Container) ([]Pinned, error) {
	var out []Pinned
	for _, c := range running {
		nodes, err := cpuset.Parse(c.Resources.GetCpusetMems()) // same format as a list of CPUs
		if err != nil {
			return nil, fmt.Errorf("read NUMA nodes of container %s of pod %s: %w", c.Name, c.UID, err)
		}
		if nodes.IsEmpty() {
			continue
		}
		held := []Held{{
			Kind:  v1.ResourceMemory,
			Bytes: uint64(c.Resources.GetMemoryLimitInBytes()),
			Nodes: nodes.List(),
		}}
		for _, l := range c.Resources.GetHugepageLimits() {
			if l.GetLimit() > 0 {
				// 2MB is what cgroups call 2Mi.
				kind := v1.ResourceName(v1.ResourceHugePagesPrefix + strings.TrimSuffix(l.GetPageSize(), "B") + "i")
				held = append(held, Held{Kind: kind, Bytes: l.GetLimit(), Nodes: nodes.List()})
			}
		}
		out = append(out, Pinned{UID: c.UID, Container: c.Name, Held: held})
	}
	return out, nil
}

// ReservedOf returns the memory that a configuration reserves on each NUMA node.
func ReservedOf(configured []v1beta1.MemoryReservation) map[int]v1.ResourceList {
	out := map[int]v1.ResourceList{}
	for _, m := range configured {
		node := int(m.NumaNode)
		if out[node] == nil {
			out[node] = v1.ResourceList{}
		}
		for name, q := range m.Limits {
			sum := out[node][name]
			sum.Add(q)
			out[node][name] = sum
		}
	}
	return out
}
