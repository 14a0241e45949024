package memory

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/resources/numa"
)

// Pinned is a running container with the memory that the runtime has pinned it to.
type Pinned struct {
	UID       types.UID
	Container string
	Held      []Held
}

// recoverState rebuilds the assignments from the running containers, in place of a checkpoint that cannot be used. It
// fails if the containers are not known or exceed the machine. With policy None there are no assignments.
func (b *Manager) recoverState(fresh machineState) error {
	b.state = state{machineState{}, assignments{}}
	if b.cfg.Policy != PolicyStatic {
		return nil
	}
	running, err := b.cfg.Running()
	if err != nil {
		return fmt.Errorf("list running containers: %w", err)
	}
	next := state{fresh, assignments{}}.clone()
	for _, k := range running {
		var blocks []block
		for _, held := range k.Held {
			if err := next.machine.reserveHeld(held); err != nil {
				return fmt.Errorf("rebuild assignments: container %s of pod %s: %w", k.Container, k.UID, err)
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

// reserveHeld reserves memory that a running container uses already.
func (m machineState) reserveHeld(h Held) error {
	for _, id := range h.Nodes {
		if m[id] == nil || m[id].MemoryMap[h.Kind] == nil {
			return fmt.Errorf("node %d has no %s", id, h.Kind)
		}
	}
	nodes := numa.NodesOf(h.Nodes...)
	switch {
	case !m.canServe(nodes):
		return errors.New("its nodes also serve another group")
	case m.sum(nodes, h.Kind, free) < h.Bytes:
		return fmt.Errorf("it has %d bytes of %s of nodes %v, where %d are left",
			h.Bytes, h.Kind, h.Nodes, m.sum(nodes, h.Kind, free))
	}
	m.reserve(nodes, h.Kind, h.Bytes)
	return nil
}
