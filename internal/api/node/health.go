package node

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/clock"
)

const (
	healthEvery = 5 * time.Second
	// healthFast is the poll interval until the node is ready for the first time, for at most healthFirst, so that
	// pods do not wait longer than needed.
	healthFast  = 100 * time.Millisecond
	healthFirst = 2 * time.Minute
	// healthBack is the poll interval while a node is not ready later on.
	healthBack = time.Second
)

// watchHealth polls the runtime's status, and wakes the status loop when the Ready condition would change. A runtime
// that does not respond is logged once.
func (n *Node) watchHealth(ctx context.Context) {
	var down error
	up := false
	for {
		st, err := n.cfg.Runtime.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && down == nil:
			n.cfg.Log.Warn("container runtime does not respond", "err", err)
		case err == nil && down != nil:
			n.cfg.Log.Info("container runtime responds again")
		}
		down = err
		if err == nil {
			n.mu.Lock()
			first := n.health.LastResponse.IsZero()
			turned := n.health.Status.Network.OK != st.Network.OK
			n.health.LastResponse, n.health.Status = time.Now(), st
			if st.Runtime.OK {
				n.health.LastReady = n.health.LastResponse
			}
			n.mu.Unlock()
			if turned && n.cfg.OnNetwork != nil {
				n.cfg.OnNetwork()
			}
			if first {
				close(n.answered)
			}
			if st.Runtime.OK && !up {
				close(n.up)
				up = true
			}
		}
		ready := n.checkReady()
		wait := healthEvery
		switch {
		case ready:
		case time.Since(n.startedAt()) < healthFirst && !n.everReady():
			wait = healthFast
		default:
			wait = healthBack
		}
		if !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// RuntimeAnswered is closed after the runtime's first response.
func (n *Node) RuntimeAnswered() <-chan struct{} { return n.answered }

// RuntimeUp is closed when the runtime is ready for the first time.
func (n *Node) RuntimeUp() <-chan struct{} { return n.up }

// checkReady computes the Ready condition and wakes the status loop if its status changes. A change of the message only
// can wait, because it may contain a time.
func (n *Node) checkReady() bool {
	ill, problems := n.failedChecks(), n.problems()
	n.mu.Lock()
	v := readyCondition(n.health, ill, problems, n.capacity, n.cfg.Storage, time.Now())
	news := v.status != condition(n.status, v1.NodeReady).Status
	n.mu.Unlock()
	if news {
		n.Wake()
	}
	return v.status == v1.ConditionTrue
}

// failedChecks returns the errors of failed checks.
func (n *Node) failedChecks() []error {
	var errs []error
	for _, c := range n.cfg.Checks {
		if err := c.Healthy(); err != nil {
			errs = append(errs, fmt.Errorf("%s is not healthy: %w", c.Name, err))
		}
	}
	return errs
}

// problems returns the errors of other parts that make the node not ready.
func (n *Node) problems() []error {
	if n.cfg.Problems == nil {
		return nil
	}
	return n.cfg.Problems()
}

func (n *Node) startedAt() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.started
}

// everReady reports whether the node was ready since the start.
func (n *Node) everReady() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wasReady
}
