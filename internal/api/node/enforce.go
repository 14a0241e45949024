package node

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/clock"
)

const enforceEvery = time.Minute

// enforce sets the node allocatable limits of all pods. It retries until that has succeeded.
func (n *Node) enforce(ctx context.Context) {
	for {
		err := n.cfg.Enforce(n.Capacity())
		if err == nil {
			n.cfg.Events.Node(v1.EventTypeNormal, EventAllocatableSet, "Updated Node Allocatable limit across pods")
			return
		}
		n.cfg.Events.Node(v1.EventTypeWarning, EventAllocatableFailing,
			fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", n.cfg.AllPods, err))
		if !clock.Sleep(ctx, enforceEvery) {
			return
		}
	}
}
