package memory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/checkpoint"
	"keelson/internal/resources/topology"
)

// The types below are what the state file holds, as upstream's agent writes it: their
// fields are what the checksum is over, in this order.

// amount is what a node has of one kind of memory, in bytes.
type amount struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"` // promised to containers
	Free           uint64 `json:"free"`
}

// nodeState is one NUMA node.
type nodeState struct {
	NumberOfAssignments int                         `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*amount `json:"memoryMap"`
	Cells               []int                       `json:"cells"` // the group that it serves, itself included
}

type machineState map[int]*nodeState

// block is what one container was promised of one kind.
type block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

type promises map[string]map[string][]block

type file struct {
	PolicyName   string              `json:"policyName"`
	MachineState machineState        `json:"machineState"`
	Entries      promises            `json:"entries,omitempty"`
	Checksum     checkpoint.Checksum `json:"checksum"`
}

// latest is the file as agents write it whose pods can have memory together, which is
// an alpha feature.
type latest struct {
	PolicyName   string              `json:"policyName"`
	MachineState machineState        `json:"machineState"`
	Entries      promises            `json:"entries,omitempty"`
	PodEntries   podEntries          `json:"podEntries,omitempty"`
	Checksum     checkpoint.Checksum `json:"checksum"`
}

type podEntries map[string]struct{}

// isLatest reports whether the file is of that form, with nothing in it that this
// agent would not know what to do with.
func isLatest(f file, content []byte, said checkpoint.Checksum) bool {
	l := latest{f.PolicyName, f.MachineState, f.Entries, podEntries{}, 0}
	if json.Unmarshal(content, &l) != nil || len(l.PodEntries) > 0 {
		return false
	}
	l.Checksum = 0
	return sum(&l) == said
}

// sum is the checksum of a file.
func sum(f any) checkpoint.Checksum {
	return checkpoint.SumAs(f, "state.MemoryManagerCheckpoint", "memory.podEntries)", "state.PodMemoryAssignments)",
		"memory.machineState)", "state.NUMANodeMap)", "memory.nodeState)", "state.NUMANodeState)", "memory.amount)", "state.MemoryTable)",
		"memory.promises)", "state.ContainerMemoryAssignments)", "memory.block)", "state.Block)", "]memory.block", "]state.Block",
		"*memory.amount", "*state.MemoryTable", "*memory.nodeState", "*state.NUMANodeState")
}

// state is how much is promised to whom.
type state struct {
	machine machineState
	to      promises
}

func (s state) clone() state {
	out := state{machineState{}, promises{}}
	for id, n := range s.machine {
		c := &nodeState{n.NumberOfAssignments, map[v1.ResourceName]*amount{}, slices.Clone(n.Cells)}
		for name, a := range n.MemoryMap {
			own := *a
			c.MemoryMap[name] = &own
		}
		out.machine[id] = c
	}
	for uid, containers := range s.to {
		entry := make(map[string][]block, len(containers))
		for name, blocks := range containers {
			entry[name] = slices.Clone(blocks)
		}
		out.to[uid] = entry
	}
	return out
}

func (s state) put(uid types.UID, container string, blocks []block) {
	if s.to[string(uid)] == nil {
		s.to[string(uid)] = map[string][]block{}
	}
	s.to[string(uid)][container] = blocks
}

func encode(policy string, s state) ([]byte, error) {
	f := file{PolicyName: policy, MachineState: s.machine, Entries: s.to}
	f.Checksum = sum(&f)
	return json.Marshal(f)
}

// decode reads the state that an agent with the same policy has left.
func decode(policy string, content []byte) (state, error) {
	f := file{MachineState: machineState{}, Entries: promises{}}
	if err := json.Unmarshal(content, &f); err != nil {
		return state{}, fmt.Errorf("decode state: %w", err)
	}
	said := f.Checksum
	f.Checksum = 0
	if is := sum(&f); is != said && !isLatest(f, content, said) {
		return state{}, fmt.Errorf("decode state: the checksum is %d, the file says %d", is, said)
	}
	if f.PolicyName != policy {
		return state{}, fmt.Errorf("[memorymanager] configured policy %q differs from state checkpoint policy %q", policy, f.PolicyName)
	}
	for id, n := range f.MachineState {
		if n == nil || id < 0 || id >= topology.MaxNodes {
			return state{}, fmt.Errorf("decode state: it has no node %d", id)
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
						return state{}, fmt.Errorf("decode state: container %s of pod %s has %s of node %d, which has none", name, uid, b.Type, id)
					}
				}
			}
		}
	}
	return state{f.MachineState, f.Entries}, nil
}

// take promises so much of the nodes, what the first has before what the next has.
func (m machineState) take(nodes topology.Nodes, of v1.ResourceName, size uint64) {
	for _, id := range nodes.IDs() {
		n := m[id]
		n.NumberOfAssignments++
		n.Cells = nodes.IDs()
		a := n.MemoryMap[of]
		now := min(size, a.Free)
		a.Reserved, a.Free, size = a.Reserved+now, a.Free-now, size-now
	}
}

// giveBack is the reverse. A node that serves nobody any more is its own again.
func (m machineState) giveBack(b block) {
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

// sums add what nodes have of each kind.
func (m machineState) sum(nodes topology.Nodes, of v1.ResourceName, part func(*amount) uint64) uint64 {
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

// serves reports whether the nodes can serve a request together: none of them serves
// another group, or is served alone.
func (m machineState) serves(nodes topology.Nodes) bool {
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

func (m machineState) nodes() topology.Nodes {
	return topology.NodesOf(slices.Collect(maps.Keys(m))...)
}
