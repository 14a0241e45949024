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
	// startGrace is how long an agent that has just started keeps bad news to
	// itself if the node was ready before: its parts need a moment to come up, and
	// a restart is no reason to drain a node.
	startGrace = 10 * time.Second
)

// keepStatus computes the status when woken and every UpdateEvery, and sends it
// when there is news or ReportEvery has passed.
func (n *Node) keepStatus(ctx context.Context) {
	defer n.gather.finish()
	select { // an answer at once is the rule; without one, that is the status
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
		case <-n.poke:
		case <-time.After(jittered(n.cfg.UpdateEvery)):
		}
	}
}

// reporter decides when a status without news is due.
type reporter struct {
	every, delay time.Duration
	last         time.Time
	silent       bool // the API server does not take the status; said once
}

func (r *reporter) due(now time.Time) bool { return now.Sub(r.last) >= r.delay }

// sent starts the interval to the next report. After a change, and after the first report,
// it is up to 50% longer or shorter, so that the reports of nodes are spread over time.
func (r *reporter) sent(now time.Time, spread bool) {
	r.last, r.delay = now, r.every
	if spread {
		r.delay += time.Duration((rand.Float64() - 0.5) * float64(r.every))
	}
}

// update computes the status and sends it if it is time to.
func (n *Node) update(ctx context.Context, r *reporter) {
	known := n.current()
	prev := n.published(known)
	status, events := n.compute(ctx, prev)
	if ctx.Err() != nil {
		return
	}
	n.tellAddresses()
	if n.cfg.API == nil {
		for _, e := range events {
			n.tell(e)
		}
		n.markRegistered()
		n.tellPodCIDR(ctx, &v1.Node{Spec: v1.NodeSpec{PodCIDR: n.cfg.PodCIDR}})
		return
	}
	if !n.isRegistered() {
		return // the node is created with the status computed last
	}
	var err error
	for try := 0; try < updateTries; try++ {
		// The copy at hand does for the first try; a failure may mean that it is
		// old.
		if known == nil || try > 0 {
			if known, err = n.cfg.API.Nodes.Get(ctx, n.cfg.Identity.Name); apierrors.IsNotFound(err) {
				break
			} else if err != nil {
				continue
			}
			n.learn(known)
			status, events = n.compute(ctx, known.Status)
		}
		if n.holdsBack(known.Status, status) {
			return
		}
		if err = n.send(ctx, r, known, status, events); err == nil {
			r.silent = false
			n.tellPodCIDR(ctx, known)
			return
		}
	}
	switch {
	case ctx.Err() != nil, r.silent, apierrors.IsNotFound(err) && !n.cfg.Register:
	default:
		r.silent = true
		n.cfg.Log.Warn("cannot update node status, will keep trying", "node", n.cfg.Identity.Name, "err", err)
	}
}

// published is the status that the next one follows: the API server's, or
// standalone our own. A node that is not registered yet has none, so that its
// events come with its creation.
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

// compute makes the status that follows prev and keeps it for the agent itself.
func (n *Node) compute(ctx context.Context, prev v1.NodeStatus) (v1.NodeStatus, []string) {
	in := Input{
		Now:              time.Now(),
		Prev:             prev,
		Hostname:         n.cfg.Identity.Hostname,
		External:         n.cfg.Identity.External,
		Provided:         n.cfg.Identity.ProvidedIP != "" || len(n.cfg.NodeIPs) > 0,
		Machine:          n.cfg.Machine,
		Storage:          n.cfg.Storage,
		Ill:              n.ill(),
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
	n.gather.fill(ctx, &in)

	n.mu.Lock()
	defer n.mu.Unlock()
	in.Health = n.health
	in.Capacity = n.capacity
	in.Allocatable = n.forPods()
	status, events := Project(in)
	if n.status.Capacity == nil {
		close(n.computed)
	}
	n.status, n.turned, n.allocatable, n.found = status, events, status.Allocatable, in.Addresses
	n.wasReady = n.wasReady || condition(status, v1.NodeReady).Status == v1.ConditionTrue
	return status, events
}

// holdsBack reports whether the status is bad news that the start of the agent
// alone may explain.
func (n *Node) holdsBack(prev, next v1.NodeStatus) bool {
	return condition(prev, v1.NodeReady).Status == v1.ConditionTrue &&
		condition(next, v1.NodeReady).Status != v1.ConditionTrue &&
		!n.everReady() && time.Since(n.startedAt()) < startGrace
}

// send patches the node if there is news or it is time to report.
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
	first := r.last.IsZero() // agents that are updated together start together
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
		n.cfg.Events.Node(v1.EventTypeWarning, EventRebooted, fmt.Sprintf("Node %s has been rebooted, boot id: %s", known.Name, status.NodeInfo.BootID))
	}
	for _, e := range events {
		n.tell(e)
	}
	n.learn(stored)
	return nil
}

// tellPodCIDR hands the addresses of the node's pods on to the runtime, which may
// write its network configuration from them.
func (n *Node) tellPodCIDR(ctx context.Context, known *v1.Node) {
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
	n.gather.complain("pod addresses to the runtime", err)
	if err == nil {
		n.cfg.Log.Info("told the runtime the addresses of pods", "podCIDR", cidr)
		n.cidr = cidr
	}
}

// jittered lengthens a period a little, so that agents started together drift
// apart.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*updateJitter*float64(d))
}

// declared are the features that the node shows for schedulers to see.
func (n *Node) declared() []string {
	if n.cfg.DeclaredFeatures == nil {
		return nil
	}
	return n.cfg.DeclaredFeatures(n.Runtime())
}
