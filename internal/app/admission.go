package app

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/podsync"
)

// admit judges a pod on its arrival.
func (a *agent) admit(p *v1.Pod, active []*v1.Pod) *podsync.Rejection {
	return a.admitOn(a.node.Node(), p, active)
}

func (a *agent) admitOn(node *v1.Node, p *v1.Pod, active []*v1.Pod) *podsync.Rejection {
	if !admission.Admissible(p) {
		return nil
	}
	rules := admission.Rules{AllowedUnsafeSysctls: a.cfg.Kubelet.AllowedUnsafeSysctls, PodLevelResources: a.cfg.Gates.Enabled("PodLevelResources")}
	r := rules.Admit(admission.Input{Pod: p, Others: active, Node: node, Allocatable: a.node.Allocatable()})
	if r == nil {
		return nil
	}
	return &podsync.Rejection{Reason: r.Reason, Message: r.Message}
}

// secondLook asks the API server for the node: its labels may have changed a
// moment ago, and the scheduler may have known before the watch here did.
func (a *agent) secondLook(ctx context.Context, r *podsync.Rejection) func(*v1.Pod, []*v1.Pod) *podsync.Rejection {
	if r.Reason != admission.ReasonNodeAffinity || a.api == nil {
		return nil
	}
	node, err := a.api.Nodes.Get(ctx, a.cfg.NodeName)
	if err != nil {
		a.log.Warn("cannot read the node for a second look at a rejected pod", "err", err)
		return nil
	}
	return func(p *v1.Pod, active []*v1.Pod) *podsync.Rejection { return a.admitOn(node, p, active) }
}
