package node

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

const enforceEvery = time.Minute

// enforce limits all pods together to what the node may give them, and tries until
// that worked once.
func (n *Node) enforce(ctx context.Context) {
	for {
		err := n.cfg.Enforce()
		if err == nil {
			n.cfg.Events.Node(v1.EventTypeNormal, EventAllocatableSet, "Updated Node Allocatable limit across pods")
			return
		}
		n.cfg.Events.Node(v1.EventTypeWarning, EventAllocatableFailing,
			fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", n.cfg.AllPods, err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(enforceEvery):
		}
	}
}
