package memory

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/host/machine"
)

// Reserve validates the reserved memory of the NUMA nodes against that of the node, and returns it in bytes.
func Reserve(
	nodes []machine.Node, kept map[int]v1.ResourceList, whole v1.ResourceList,
) (map[int]map[v1.ResourceName]uint64, error) {
	sums := map[v1.ResourceName]*resource.Quantity{v1.ResourceMemory: new(resource.Quantity)}
	out := map[int]map[v1.ResourceName]uint64{}
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		if !slices.ContainsFunc(nodes, func(n machine.Node) bool { return n.ID == id }) {
			return nil, fmt.Errorf(
				"the reserved memory configuration references a NUMA node %d that does not exist on this "+
					"machine", id)
		}
		out[id] = map[v1.ResourceName]uint64{}
		for name, q := range kept[id] {
			if sums[name] == nil {
				sums[name] = new(resource.Quantity)
			}
			sums[name].Add(q)
			out[id][name] = uint64(q.Value())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		want := whole[name]
		if sums[name].Cmp(want) != 0 {
			return nil, fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node "+
				"Allocatable feature", sums[name], name, &want)
		}
	}
	return out, nil
}

// newMachineState returns the state of the machine without assignments.
func newMachineState(nodes []machine.Node, sizes []uint64, reserved map[int]map[v1.ResourceName]uint64) machineState {
	m := machineState{}
	for _, n := range nodes {
		of := map[v1.ResourceName]*amount{}
		huge := uint64(0)
		for _, size := range sizes {
			name := v1.ResourceName(v1.ResourceHugePagesPrefix +
				resource.NewQuantity(int64(size), resource.BinarySI).String())
			total := size * n.HugePages[size]
			huge += total
			of[name] = newAmount(total, 0, reserved[n.ID][name])
		}
		of[v1.ResourceMemory] = newAmount(n.Memory, huge, reserved[n.ID][v1.ResourceMemory])
		m[n.ID] = &nodeState{MemoryMap: of, Cells: []int{n.ID}}
	}
	return m
}

// newAmount returns an amount without assignments. Of the total, other is used for something else.
func newAmount(total, other, reserved uint64) *amount {
	a := &amount{TotalMemSize: total, SystemReserved: reserved}
	if gone := other + reserved; gone < total {
		a.Allocatable = total - gone
		a.Free = a.Allocatable
	}
	return a
}
