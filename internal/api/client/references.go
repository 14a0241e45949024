package client

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// podReference returns the reference to a pod in an event. For a static pod it has the UID of the static pod, not of
// its mirror pod, because containers are labelled with the former.
func podReference(p *corev1.Pod, container string) corev1.ObjectReference {
	ref := corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       p.Namespace,
		Name:            p.Name,
		UID:             p.UID,
		ResourceVersion: p.ResourceVersion,
	}
	if container != "" {
		ref.FieldPath = pod.FieldPath(p, container)
	}
	return ref
}

// nodeReference returns the reference to the node in an event. As upstream, its UID is the name of the node.
func nodeReference(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}
