package memory

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/resources/topology"
)

// Kept is a container that runs, with the memory of NUMA nodes that the runtime keeps it
// to.
type Kept struct {
	UID       types.UID
	Container string
	Held      []Held
}

// recover takes up what containers run by, in place of a state that cannot be used. It
// fails where that is not known, or is more than the machine has. Where there is no
// policy, nobody runs by anything.
func (b *Book) recover(fresh machineState) error {
	b.state = state{machineState{}, promises{}}
	if b.cfg.Policy != PolicyStatic {
		return nil
	}
	running, err := b.cfg.Running()
	if err != nil {
		return fmt.Errorf("what containers run by is not known: %w", err)
	}
	next := state{fresh, promises{}}.clone()
	for _, k := range running {
		var blocks []block
		for _, held := range k.Held {
			if err := next.machine.promise(held); err != nil {
				return fmt.Errorf("what containers run by does not fit: container %s of pod %s: %w", k.Container, k.UID, err)
			}
			blocks = append(blocks, block{held.Nodes, held.Kind, held.Bytes})
		}
		if len(blocks) > 0 {
			next.put(k.UID, k.Container, blocks)
		}
	}
	b.state = next
	return nil
}

// promise takes what somebody holds already.
func (m machineState) promise(h Held) error {
	for _, id := range h.Nodes {
		if m[id] == nil || m[id].MemoryMap[h.Kind] == nil {
			return fmt.Errorf("it has %s of node %d, which has none", h.Kind, id)
		}
	}
	nodes := topology.NodesOf(h.Nodes...)
	switch {
	case !m.serves(nodes):
		return errors.New("its nodes serve others, too")
	case m.sum(nodes, h.Kind, free) < h.Bytes:
		return fmt.Errorf("it has %d bytes of %s of nodes %v, where %d are left", h.Bytes, h.Kind, h.Nodes, m.sum(nodes, h.Kind, free))
	}
	m.take(nodes, h.Kind, h.Bytes)
	return nil
}
