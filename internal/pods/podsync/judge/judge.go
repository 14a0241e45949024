package judge

import (
	"context"
	"log/slog"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/device"
)

// Node is the node as pods are admitted to it.
type Node interface {
	Node() *v1.Node
	Allocatable() v1.ResourceList
	Declared() []string // features
}

// Conditions of the node.
type Conditions interface {
	Pressures() []v1.NodeConditionType
	Leaving() bool // the machine is shutting down
}

// Judge admits pods by the state of the node.
type Judge struct {
	Rules      admission.Rules
	Conditions Conditions
	Node       Node
	Devices    *device.Manager
	GetNode    func(context.Context) (*v1.Node, error) // from the API server; nil: standalone
	Log        *slog.Logger
}

// Admit admits a pod, or returns why not.
func (j Judge) Admit(p *v1.Pod, others []*v1.Pod, admitted bool) *pod.Rejection {
	return j.admitOn(j.Node.Node(), p, others, admitted)
}

func (j Judge) admitOn(node *v1.Node, p *v1.Pod, others []*v1.Pod, admitted bool) *pod.Rejection {
	if !admission.Admissible(p) {
		return nil
	}
	in := j.input(node, p, others)
	in.Late = j.Devices.Late(p, admitted)
	return j.Rules.Admit(in)
}

func (j Judge) input(node *v1.Node, p *v1.Pod, others []*v1.Pod) admission.Input {
	shown := *node // the Node object may not have this agent's features yet
	shown.Status.DeclaredFeatures = j.Node.Declared()
	return admission.Input{
		Pod:         p,
		Others:      others,
		Node:        &shown,
		Allocatable: j.allocatable(node.Status.Allocatable),
		Pressure:    j.Conditions.Pressures(),
		Leaving:     j.Conditions.Leaving(),
	}
}

// allocatable is what pods can have. It includes the devices that are healthy now, which the Node shows later. Extended
// resources that the Node shows as zero and no device plugin offers are zero: no pod can have them.
func (j Judge) allocatable(shown v1.ResourceList) v1.ResourceList {
	out := j.Node.Allocatable()
	_, healthy, _ := j.Devices.Capacity()
	maps.Copy(out, device.Quantities(healthy))
	for name, q := range shown {
		if _, known := out[name]; !known && q.IsZero() {
			out[name] = q
		}
	}
	return out
}

// SecondLook reads the Node: its labels may have just changed, and the scheduler may have seen that before this agent's
// watch.
func (j Judge) SecondLook(ctx context.Context, r *pod.Rejection) allocation.Judge {
	if r.Reason != admission.ReasonNodeAffinity || j.GetNode == nil {
		return nil
	}
	node, err := j.GetNode(ctx)
	if err != nil {
		j.Log.Warn("failed to get node to admit a rejected pod again", "err", err)
		return nil
	}
	return func(p *v1.Pod, others []*v1.Pod, admitted bool) *pod.Rejection {
		return j.admitOn(node, p, others, admitted)
	}
}

// MakeRoom returns the pods to be preempted so that a critical pod can run.
func (j Judge) MakeRoom(p *v1.Pod, others []*v1.Pod, r *pod.Rejection) ([]*v1.Pod, error) {
	if !strings.HasPrefix(r.Reason, admission.ReasonOutOf) {
		return nil, nil
	}
	return j.Rules.Preempt(j.input(j.Node.Node(), p, others))
}
