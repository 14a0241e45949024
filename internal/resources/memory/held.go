package memory

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Held is memory of one kind on NUMA nodes.
type Held struct {
	Kind  v1.ResourceName // memory, or huge pages of a size
	Bytes uint64
	Nodes []int
}

// Of returns the memory that is assigned to a container.
func (b *Manager) Of(uid types.UID, container string) (out []Held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.assigned[string(uid)][container] {
		out = append(out, Held{one.Type, one.Size, slices.Clone(one.NUMAAffinity)})
	}
	return out
}

// Allocatable returns the memory of each node that can be assigned. It is empty if the policy is None.
func (b *Manager) Allocatable() (out []Held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(b.machine)) {
		kinds := b.machine[node].MemoryMap
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			out = append(out, Held{kind, kinds[kind].Allocatable, []int{node}})
		}
	}
	return out
}
