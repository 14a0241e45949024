package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	updateTries  = 5
	updateJitter = 0.04
	// startGrace is how long an agent that has just started does not set a node to not ready that was ready before: its
	// parts need a moment to start, and a restart must not cause evictions.
	startGrace = 10 * time.Second
)

// updateStatusLoop computes the status on wake-ups and every UpdateEvery. It sends the status when it has changed or
// ReportEvery has passed.
func (n *Node) updateStatusLoop(ctx context.Context) {
	defer n.collect.finish()
	select { // usually closed at once; otherwise the status reports it
	case <-ctx.Done():
		return
	case <-n.answered:
	case <-time.After(startGrace):
	}
	r := reporter{every: n.cfg.ReportEvery}
	for {
		n.update(ctx, &r)
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-time.After(jittered(n.cfg.UpdateEvery)):
		}
	}
}

// reporter decides when a status without changes is due.
type reporter struct {
	every, delay time.Duration
	last         time.Time
	silent       bool // the current failure to send the status was logged
}

func (r *reporter) due(now time.Time) bool { return now.Sub(r.last) >= r.delay }

// sent starts the interval to the next report. With spread, which is set after a change and after the first report, it
// is up to 50% longer or shorter, so that the reports of nodes are spread over time.
func (r *reporter) sent(now time.Time, spread bool) {
	r.last, r.delay = now, r.every
	if spread {
		r.delay += time.Duration((rand.Float64() - 0.5) * float64(r.every))
	}
}

// update computes the status and sends it if it is due.
func (n *Node) update(ctx context.Context, r *reporter) {
	known := n.current()
	prev := n.published(known)
	status, events := n.compute(ctx, prev)
	if ctx.Err() != nil {
		return
	}
	n.notifyAddresses()
	if n.cfg.API == nil {
		for _, e := range events {
			n.recordEvent(e)
		}
		n.markRegistered()
		n.updatePodCIDR(ctx, &v1.Node{Spec: v1.NodeSpec{PodCIDR: n.cfg.PodCIDR}})
		return
	}
	if !n.isRegistered() {
		return // the node is created with the status computed last
	}
	var err error
	for try := 0; try < updateTries; try++ {
		// The first attempt uses the copy. A failure may mean that it is out of date.
		if known == nil || try > 0 {
			if known, err = n.cfg.API.Nodes.Get(ctx, n.cfg.Identity.Name); apierrors.IsNotFound(err) {
				break
			} else if err != nil {
				continue
			}
			n.setNode(known)
			status, events = n.compute(ctx, known.Status)
		}
		if n.withholdNotReady(known.Status, status) {
			return
		}
		if err = n.send(ctx, r, known, status, events); err == nil {
			r.silent = false
			n.updatePodCIDR(ctx, known)
			return
		}
	}
	switch {
	case ctx.Err() != nil, r.silent, apierrors.IsNotFound(err) && !n.cfg.Register:
	default:
		r.silent = true
		n.cfg.Log.Warn("failed to update node status", "node", n.cfg.Identity.Name, "err", err)
	}
}

// published returns the previous status: that of the API server, or the local one without an API server. A node that is
// not registered yet has none, so that its events are recorded when it is created.
func (n *Node) published(known *v1.Node) v1.NodeStatus {
	switch {
	case known != nil:
		return known.Status
	case n.cfg.API != nil:
		return v1.NodeStatus{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

// compute computes the next status and stores it.
func (n *Node) compute(ctx context.Context, prev v1.NodeStatus) (v1.NodeStatus, []string) {
	in := Input{
		Now:              time.Now(),
		Prev:             prev,
		Hostname:         n.cfg.Identity.Hostname,
		External:         n.cfg.Identity.External,
		Provided:         n.cfg.Identity.ProvidedIP != "" || len(n.cfg.NodeIPs) > 0,
		Machine:          n.cfg.Machine,
		Storage:          n.cfg.Storage,
		Ill:              n.failedChecks(),
		Problems:         n.problems(),
		MaxImages:        n.cfg.MaxImages,
		Version:          n.cfg.Version,
		Port:             n.cfg.Port,
		DeclaredFeatures: n.declared(),
	}
	if n.cfg.Devices != nil {
		in.Devices = n.cfg.Devices()
	}
	if n.cfg.VolumesInUse != nil {
		in.VolumesInUse = n.cfg.VolumesInUse()
	}
	n.collect.fill(ctx, &in)

	n.mu.Lock()
	defer n.mu.Unlock()
	in.Health = n.health
	in.Capacity = n.capacity
	in.Allocatable = n.computeAllocatable()
	status, events := Project(in)
	if n.status.Capacity == nil {
		close(n.computed)
	}
	n.status, n.turned, n.allocatable, n.found = status, events, status.Allocatable, in.Addresses
	n.wasReady = n.wasReady || condition(status, v1.NodeReady).Status == v1.ConditionTrue
	return status, events
}

// withholdNotReady reports whether the status should not be sent yet, because the node is not ready only since the
// agent has started.
func (n *Node) withholdNotReady(prev, next v1.NodeStatus) bool {
	return condition(prev, v1.NodeReady).Status == v1.ConditionTrue &&
		condition(next, v1.NodeReady).Status != v1.ConditionTrue &&
		!n.everReady() && time.Since(n.startedAt()) < startGrace
}

// send patches the node if its status has changed or a report is due.
func (n *Node) send(ctx context.Context, r *reporter, known *v1.Node, status v1.NodeStatus, events []string) error {
	now := time.Now()
	want := known.DeepCopy()
	want.Status = status
	want.Labels, want.Annotations = n.cfg.Identity.heal(known.Labels), n.cfg.Identity.healAnnotations(known.Annotations)
	news := changed(known.Status, status) || !n.cfg.Identity.healed(known)
	if !news && !r.due(now) {
		return nil
	}
	patch, err := diff(known, want)
	if err != nil {
		return err
	}
	first := r.last.IsZero() // spread, because agents are often updated at the same time
	if patch == nil {
		r.sent(now, first)
		return nil
	}
	stored, err := n.cfg.API.Nodes.PatchStatus(ctx, known.Name, patch)
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", known.Name, err)
	}
	r.sent(now, news || first)
	if boot := known.Status.NodeInfo.BootID; boot != "" && boot != status.NodeInfo.BootID {
		n.cfg.Events.Node(v1.EventTypeWarning, EventRebooted,
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", known.Name, status.NodeInfo.BootID))
	}
	for _, e := range events {
		n.recordEvent(e)
	}
	n.setNode(stored)
	return nil
}

// updatePodCIDR configures the pod CIDR in the runtime, which may generate its network configuration from it.
func (n *Node) updatePodCIDR(ctx context.Context, known *v1.Node) {
	cidr := strings.Join(known.Spec.PodCIDRs, ",")
	if cidr == "" {
		cidr = known.Spec.PodCIDR
	}
	if cidr == "" || cidr == n.cidr {
		return
	}
	_, err := n.cfg.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}},
	})
	n.collect.logOnce("pod CIDR of the runtime", err)
	if err == nil {
		n.cfg.Log.Info("updated pod CIDR of the runtime", "podCIDR", cidr)
		n.cidr = cidr
	}
}

// jittered lengthens a period by a random amount, so that agents that were started together do not stay in step.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*updateJitter*float64(d))
}

// declared returns the declared features of the node.
func (n *Node) declared() []string {
	if n.cfg.DeclaredFeatures == nil {
		return nil
	}
	return n.cfg.DeclaredFeatures(n.Runtime())
}
