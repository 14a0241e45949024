package memory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
	"keelson/internal/resources/numa"
)

// The types below are the format of the checkpoint, which is the same as upstream's. The checksum covers their fields
// in this order.

// amount is the memory of one kind of a node, in bytes.
type amount struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"` // assigned to containers
	Free           uint64 `json:"free"`
}

// nodeState is the state of one NUMA node.
type nodeState struct {
	NumberOfAssignments int                         `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*amount `json:"memoryMap"`
	Cells               []int                       `json:"cells"` // the group that it serves, including itself
}

type machineState map[int]*nodeState

// block is the memory of one kind that is assigned to a container.
type block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

type assignments map[string]map[string][]block

type file struct {
	PolicyName   string              `json:"policyName"`
	MachineState machineState        `json:"machineState"`
	Entries      assignments         `json:"entries,omitempty"`
	Checksum     checkpoint.Checksum `json:"checksum"`
}

// fileWithPods is the format of agents that support pod-level memory assignments, an alpha feature.
type fileWithPods struct {
	PolicyName   string              `json:"policyName"`
	MachineState machineState        `json:"machineState"`
	Entries      assignments         `json:"entries,omitempty"`
	PodEntries   podEntries          `json:"podEntries,omitempty"`
	Checksum     checkpoint.Checksum `json:"checksum"`
}

type podEntries map[string]struct{}

// isFileWithPods reports whether the checkpoint has the format of fileWithPods and no pod-level assignments. This agent
// does not support those.
func isFileWithPods(f file, content []byte, recorded checkpoint.Checksum) bool {
	l := fileWithPods{f.PolicyName, f.MachineState, f.Entries, podEntries{}, 0}
	if json.Unmarshal(content, &l) != nil || len(l.PodEntries) > 0 {
		return false
	}
	l.Checksum = 0
	return sum(&l) == recorded
}

// sum returns the checksum of a file, computed with upstream's names of the types.
func sum(f any) checkpoint.Checksum {
	return checkpoint.SumAs(f, "state.MemoryManagerCheckpoint", "memory.podEntries)", "state.PodMemoryAssignments)",
		"memory.machineState)", "state.NUMANodeMap)", "memory.nodeState)", "state.NUMANodeState)",
		"memory.amount)", "state.MemoryTable)",
		"memory.assignments)", "state.ContainerMemoryAssignments)", "memory.block)", "state.Block)",
		"]memory.block", "]state.Block",
		"*memory.amount", "*state.MemoryTable", "*memory.nodeState", "*state.NUMANodeState")
}

// state is the memory of the machine and its assignment to containers.
type state struct {
	machine  machineState
	assigned assignments
}

func (s state) clone() state {
	out := state{machineState{}, assignments{}}
	for id, n := range s.machine {
		c := &nodeState{n.NumberOfAssignments, map[v1.ResourceName]*amount{}, slices.Clone(n.Cells)}
		for name, a := range n.MemoryMap {
			own := *a
			c.MemoryMap[name] = &own
		}
		out.machine[id] = c
	}
	for uid, containers := range s.assigned {
		entry := make(map[string][]block, len(containers))
		for name, blocks := range containers {
			entry[name] = slices.Clone(blocks)
		}
		out.assigned[uid] = entry
	}
	return out
}

func (s state) put(uid types.UID, container string, blocks []block) {
	if s.assigned[string(uid)] == nil {
		s.assigned[string(uid)] = map[string][]block{}
	}
	s.assigned[string(uid)][container] = blocks
}

func encode(policy string, s state) ([]byte, error) {
	f := file{PolicyName: policy, MachineState: s.machine, Entries: s.assigned}
	f.Checksum = sum(&f)
	return json.Marshal(f)
}

// decode parses the checkpoint of an agent with the same policy.
func decode(policy string, content []byte) (state, error) {
	f := file{MachineState: machineState{}, Entries: assignments{}}
	if err := json.Unmarshal(content, &f); err != nil {
		return state{}, fmt.Errorf("decode state: %w", err)
	}
	recorded := f.Checksum
	f.Checksum = 0
	if is := sum(&f); is != recorded && !isFileWithPods(f, content, recorded) {
		return state{}, fmt.Errorf("decode state: the checksum is %d, the file says %d", is, recorded)
	}
	if f.PolicyName != policy {
		return state{}, fmt.Errorf("[memorymanager] configured policy %q differs from state checkpoint policy %q",
			policy,
			f.PolicyName)
	}
	for id, n := range f.MachineState {
		if n == nil || id < 0 || id >= numa.MaxNodes {
			return state{}, fmt.Errorf("decode state: invalid node %d", id)
		}
		for name, a := range n.MemoryMap {
			if a == nil {
				return state{}, fmt.Errorf("decode state: node %d has no amount of %s", id, name)
			}
		}
	}
	for uid, containers := range f.Entries {
		for name, blocks := range containers {
			for _, b := range blocks {
				for _, id := range b.NUMAAffinity {
					if f.MachineState[id] == nil || f.MachineState[id].MemoryMap[b.Type] == nil {
						return state{}, fmt.Errorf(
							"decode state: container %s of pod %s has %s of node %d, which has none", name, uid,
							b.Type, id)
					}
				}
			}
		}
	}
	return state{f.MachineState, f.Entries}, nil
}

// reserve reserves memory on the nodes, in their order.
func (m machineState) reserve(nodes numa.Nodes, of v1.ResourceName, size uint64) {
	for _, id := range nodes.IDs() {
		n := m[id]
		n.NumberOfAssignments++
		n.Cells = nodes.IDs()
		a := n.MemoryMap[of]
		now := min(size, a.Free)
		a.Reserved, a.Free, size = a.Reserved+now, a.Free-now, size-now
	}
}

// release reverses reserve. A node without assignments leaves its group.
func (m machineState) release(b block) {
	size := b.Size
	for _, id := range b.NUMAAffinity {
		n := m[id]
		n.NumberOfAssignments--
		if n.NumberOfAssignments == 0 {
			n.Cells = []int{id}
		}
		a := n.MemoryMap[b.Type]
		now := min(size, a.Reserved)
		a.Reserved, a.Free, size = a.Reserved-now, a.Free+now, size-now
	}
}

// sum adds up a quantity of the nodes.
func (m machineState) sum(nodes numa.Nodes, of v1.ResourceName, part func(*amount) uint64) uint64 {
	total := uint64(0)
	for _, id := range nodes.IDs() {
		if a := m[id].MemoryMap[of]; a != nil {
			total += part(a)
		}
	}
	return total
}

func free(a *amount) uint64        { return a.Free }
func allocatable(a *amount) uint64 { return a.Allocatable }

// canServe reports whether the nodes can serve a request as a group: none of them serves another group, or requests for
// itself only.
func (m machineState) canServe(nodes numa.Nodes) bool {
	ids := nodes.IDs()
	for _, id := range ids {
		n := m[id]
		if len(ids) == 1 && len(n.Cells) > 1 {
			return false
		}
		if len(ids) > 1 && n.NumberOfAssignments > 0 && !slices.Equal(slices.Sorted(slices.Values(n.Cells)), ids) {
			return false
		}
	}
	return true
}

func (m machineState) nodes() numa.Nodes {
	return numa.NodesOf(slices.Collect(maps.Keys(m))...)
}
