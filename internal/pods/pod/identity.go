package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ref identifies a pod without its specification, such as the pod of an orphaned sandbox.
type Ref struct {
	UID       types.UID
	Namespace string
	Name      string
}

// RefOf returns the pod's Ref.
func RefOf(p *v1.Pod) Ref { return Ref{UID: p.UID, Namespace: p.Namespace, Name: p.Name} }

func (r Ref) String() string { return r.Namespace + "/" + r.Name + " " + string(r.UID) }

// FullName is name_namespace. Only one static pod of a full name may run at a time.
func FullName(p *v1.Pod) string { return RefOf(p).FullName() }

// FullName is the full name of the pod.
func (r Ref) FullName() string { return r.Name + "_" + r.Namespace }

// SourceOf returns the pod's source; without the annotation it is the API server.
func SourceOf(p *v1.Pod) Source {
	if s, ok := p.Annotations[AnnotationConfigSource]; ok {
		return Source(s)
	}
	return SourceAPI
}

// IsMirror reports whether p is a mirror pod.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[AnnotationConfigMirror]
	return ok
}

// IsStatic reports whether p came from a file or URL of this node.
func IsStatic(p *v1.Pod) bool { return SourceOf(p) != SourceAPI }

// IsTerminal reports whether the phase in the pod's stored status is terminal.
func IsTerminal(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
}

// IsCritical reports whether p is a critical pod: a static or mirror pod, or one with a
// system priority.
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || p.Spec.Priority != nil && *p.Spec.Priority >= 2_000_000_000
}

// IsStandIn reports whether p is a placeholder for a pod that no source has delivered yet:
// only its UID and resources are known, not whether it is critical.
func IsStandIn(p *v1.Pod) bool { return p.Name == "" }

// IsNodeCritical reports whether p is critical and has the priority class
// system-node-critical. The priority alone is not enough: a static pod may have any.
func IsNodeCritical(p *v1.Pod) bool {
	return IsCritical(p) && p.Spec.PriorityClassName == "system-node-critical"
}
