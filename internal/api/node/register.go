package node

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson/internal/host/clock"
)

const (
	registerFirst = 100 * time.Millisecond
	registerLast  = 7 * time.Second
	// registerWait is how long the creation of the node waits for its first status, which in turn waits for the
	// runtime's first response.
	registerWait = 2 * time.Second
)

// register creates or adopts the node object. It retries until it succeeds. Failures are logged once.
func (n *Node) register(ctx context.Context) {
	if !n.cfg.Register {
		n.markRegistered()
		n.Wake()
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-n.computed:
	case <-time.After(registerWait):
	}
	logged := false
	backoff := clock.Backoff(registerFirst, registerLast)
	for try := 1; ; try++ {
		node, err := n.tryRegister(ctx)
		if err == nil {
			n.cfg.Log.Info("registered node", "node", node.Name)
			n.setNode(node)
			n.markRegistered()
			n.Wake()
			return
		}
		if !logged && ctx.Err() == nil {
			n.cfg.Log.Warn("failed to register node", "node", n.cfg.Identity.Name, "err", err)
			logged = true
		}
		if try > 1 {
			n.closeConnections(err)
		}
		if !clock.Sleep(ctx, backoff.Step()) {
			return
		}
	}
}

func (n *Node) tryRegister(ctx context.Context) (*v1.Node, error) {
	own := n.cfg.Identity.object()
	status, events := n.ownStatus()
	own.Status = status
	n.cfg.Startup.tries(time.Now())
	node, err := n.cfg.API.Nodes.Create(ctx, own)
	if err == nil {
		n.cfg.Startup.created(time.Now())
		for _, e := range events {
			n.recordEvent(e)
		}
		return node, nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("create node %s: %w", own.Name, err)
	}
	existing, getErr := n.cfg.API.Nodes.Get(ctx, own.Name)
	if apierrors.IsNotFound(getErr) {
		return nil, fmt.Errorf("create node %s: %w", own.Name, err) // forbidden, and does not exist
	}
	if getErr != nil {
		return nil, fmt.Errorf("read node %s: %w", own.Name, getErr)
	}
	patch, err := diff(existing, n.cfg.Identity.adopt(existing, n.Capacity(), n.resetsExtended(existing)))
	if err != nil || patch == nil {
		return existing, err
	}
	adopted, err := n.cfg.API.Nodes.PatchStatus(ctx, own.Name, patch)
	if err != nil {
		return nil, fmt.Errorf("adopt node %s: %w", own.Name, err)
	}
	return adopted, nil
}

// resetsExtended reports whether the extended resources of an existing node are those of another machine, which no
// plugin of this machine has offered. On the same machine an administrator may have set them.
func (n *Node) resetsExtended(existing *v1.Node) bool {
	was, is := existing.Status.NodeInfo, n.cfg.Machine
	other := was.MachineID != "" && was.MachineID != is.MachineID ||
		was.SystemUUID != "" && was.SystemUUID != is.SystemUUID
	return n.cfg.NoDeviceRecord && other
}

// ownStatus returns the last computed status with its events, or before that a status with the capacity of the machine.
func (n *Node) ownStatus() (v1.NodeStatus, []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.status.Capacity != nil {
		return *n.status.DeepCopy(), n.turned
	}
	return v1.NodeStatus{Capacity: n.capacity.DeepCopy(), Allocatable: n.allocatable.DeepCopy()}, nil
}

func (n *Node) markRegistered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.isRegistered() {
		close(n.registered)
	}
}

func (n *Node) isRegistered() bool {
	select {
	case <-n.registered:
		return true
	default:
		return false
	}
}
