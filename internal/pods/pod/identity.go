package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names a pod where the specification is not at hand, as for a sandbox
// whose pod is known to no source any more.
type Ref struct {
	UID       types.UID
	Namespace string
	Name      string
}

// RefOf is the pod's name tag.
func RefOf(p *v1.Pod) Ref { return Ref{UID: p.UID, Namespace: p.Namespace, Name: p.Name} }

func (r Ref) String() string { return r.Namespace + "/" + r.Name + " " + string(r.UID) }

// FullName is name_namespace, the form in which two static pods are compared:
// only one pod of a full name may run at a time.
func FullName(p *v1.Pod) string { return RefOf(p).FullName() }

// FullName is the full name of the pod.
func (r Ref) FullName() string { return r.Name + "_" + r.Namespace }

// SourceOf tells where the pod came from; a pod without the annotation is taken
// for one of the API server's.
func SourceOf(p *v1.Pod) Source {
	if s, ok := p.Annotations[AnnotationConfigSource]; ok {
		return Source(s)
	}
	return SourceAPI
}

// IsMirror reports whether p is the API server's picture of a static pod.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[AnnotationConfigMirror]
	return ok
}

// IsStatic reports whether p came from a file or URL of this node.
func IsStatic(p *v1.Pod) bool { return SourceOf(p) != SourceAPI }

// IsTerminal reports whether the phase in the pod's stored status ends its life.
func IsTerminal(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
}

// IsCritical reports whether p is preferred over all others: a static or mirror
// pod, or one with a system priority.
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || p.Spec.Priority != nil && *p.Spec.Priority >= 2_000_000_000
}

// IsStandIn reports whether p takes the place of a pod of which no source has told
// yet: it has a UID and resources, and nothing else of it is known, not even whether
// it is critical.
func IsStandIn(p *v1.Pod) bool { return p.Name == "" }

// IsNodeCritical reports whether p is critical and of the class of pods that the node itself needs. A priority alone
// does not make it so: a static pod may have any.
func IsNodeCritical(p *v1.Pod) bool {
	return IsCritical(p) && p.Spec.PriorityClassName == "system-node-critical"
}
