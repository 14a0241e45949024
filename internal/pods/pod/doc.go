// Package pod is the vocabulary of the agent: names of pods, kinds of containers, the
// observed state of a pod, and the values that other packages exchange about it.
//
// It owns no state and makes no decision about when to act. Pod specifications are *v1.Pod
// objects, shared between packages and immutable: changes are made to a copy.
//
// The agent reconciles two views of a pod. The desired one is the specification (package
// desired). The observed one is a [Runtime], read from the container runtime (package
// observed). Both are values; a notification carries only the UID.
package pod
