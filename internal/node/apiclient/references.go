package apiclient

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// podReference names a pod in an event. A static pod is named by its own UID,
// not by its mirror's: that is the one in the labels of its containers.
func podReference(p *corev1.Pod, container string) corev1.ObjectReference {
	ref := corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod",
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}
	if container != "" {
		ref.FieldPath = pod.FieldPath(p, container)
	}
	return ref
}

// nodeReference names the node. Its name stands in for its UID, because readers
// of node events have always looked for it there.
func nodeReference(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}
