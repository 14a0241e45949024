// Package pod is the vocabulary of the agent: what a pod is called, what its
// containers are, what the runtime was seen to hold for it, and the values that
// the other packages pass to each other about it.
//
// It owns no state and makes no decision about when to act. Pod specifications
// are the API's own *v1.Pod, shared between packages and never changed: who
// needs another one makes a copy.
//
// Two views of a pod meet in the agent. What should run is the specification
// (package desired). What does run is a [Runtime], read from the container
// runtime (package observed). Both are values; a wake-up carries only the UID.
package pod
