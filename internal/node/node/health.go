package node

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	healthEvery = 5 * time.Second
	// healthFast applies while a node is on its way to its first Ready, healthFirst
	// long at most; a pod that waits for the node waits no longer than needed.
	healthFast  = 100 * time.Millisecond
	healthFirst = 2 * time.Minute
	// healthBack applies while a node is not ready later on.
	healthBack = time.Second
)

// watchHealth asks the runtime for its state and wakes the status loop whenever
// that would change the Ready condition. A runtime that is down is said once.
func (n *Node) watchHealth(ctx context.Context) {
	var down error
	up := false
	for {
		st, err := n.cfg.Runtime.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && down == nil:
			n.cfg.Log.Warn("container runtime does not answer", "err", err)
		case err == nil && down != nil:
			n.cfg.Log.Info("container runtime answers again")
		}
		down = err
		if err == nil {
			n.mu.Lock()
			first := n.health.Seen.IsZero()
			turned := n.health.Status.Network.OK != st.Network.OK
			n.health.Seen, n.health.Status = time.Now(), st
			if st.Runtime.OK {
				n.health.Well = n.health.Seen
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// RuntimeAnswered is closed when the runtime has told for the first time how it is and
// what it can do.
func (n *Node) RuntimeAnswered() <-chan struct{} { return n.answered }

// RuntimeUp is closed when the runtime has said for the first time that it is well.
func (n *Node) RuntimeUp() <-chan struct{} { return n.up }

// checkReady computes the Ready condition and wakes the status loop if it turned.
// Another message alone can wait: it may tell the time.
func (n *Node) checkReady() bool {
	ill, problems := n.ill(), n.problems()
	n.mu.Lock()
	v := readiness(n.health, ill, problems, n.capacity, n.cfg.Storage, time.Now())
	news := v.status != condition(n.status, v1.NodeReady).Status
	n.mu.Unlock()
	if news {
		n.Poke()
	}
	return v.status == v1.ConditionTrue
}

// ill are the checks that fail.
func (n *Node) ill() []error {
	var errs []error
	for _, c := range n.cfg.Checks {
		if err := c.Healthy(); err != nil {
			errs = append(errs, fmt.Errorf("%s is not healthy: %w", c.Name, err))
		}
	}
	return errs
}

// problems are the reasons of other parts not to be ready.
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
