package app

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
)

// admit judges a pod on its arrival.
func (a *agent) admit(p *v1.Pod, others []*v1.Pod, admitted bool) *allocation.Rejection {
	return a.admitOn(a.node.Node(), p, others, admitted)
}

func (a *agent) admitOn(node *v1.Node, p *v1.Pod, others []*v1.Pod, admitted bool) *allocation.Rejection {
	if !admission.Admissible(p) {
		return nil
	}
	in := a.admissionInput(node, p, others)
	in.Late = a.devices.Late(p, admitted)
	r := a.rules.Admit(in)
	if r == nil {
		return nil
	}
	return &allocation.Rejection{Reason: r.Reason, Message: r.Message, Late: r.Late}
}

// tellOfLack tells of a change of a pod that needs what this node does not declare. The
// rest of the change counts.
func (a *agent) tellOfLack(old, p *v1.Pod) {
	var node v1.Node
	node.Status.DeclaredFeatures = a.declaredFeatures(a.node.Runtime())
	if lacks := a.rules.Lack(old, p, &node); lacks != "" {
		a.events.Pod(p, "", v1.EventTypeWarning, pod.EventFeaturesLacking, lacks)
	}
}

func (a *agent) admissionInput(node *v1.Node, p *v1.Pod, others []*v1.Pod) admission.Input {
	shown := *node // the API server may not have heard of this agent's features yet
	shown.Status.DeclaredFeatures = a.declaredFeatures(a.node.Runtime())
	return admission.Input{Pod: p, Others: others, Node: &shown, Allocatable: a.withDevices(a.node.Allocatable(), node.Status.Allocatable), Pressure: a.evictor.Pressures(), Leaving: a.leaving.Leaving()}
}

// secondLook asks the API server for the node: its labels may have changed a
// moment ago, and the scheduler may have known before the watch here did.
func (a *agent) secondLook(ctx context.Context, r *allocation.Rejection) allocation.Judge {
	if r.Reason != admission.ReasonNodeAffinity || a.api == nil {
		return nil
	}
	node, err := a.api.Nodes.Get(ctx, a.cfg.NodeName)
	if err != nil {
		a.log.Warn("cannot read the node for a second look at a rejected pod", "err", err)
		return nil
	}
	return func(p *v1.Pod, others []*v1.Pod, admitted bool) *allocation.Rejection {
		return a.admitOn(node, p, others, admitted)
	}
}
