// Package admission judges whether a pod that has arrived may run on this node.
//
// It holds no state: [Rules.Admit] is a pure function of the pod, the node, what
// the node can give, and the pods that run already. The scheduler has judged
// before, but from an older picture, and nobody has judged a pod that was bound
// by hand. The first reason found counts, in a fixed order.
//
// A rejection is final for the pod: it is shown as Failed and never started. The
// one answer worth asking twice is [ReasonNodeAffinity]: the node's labels may
// have changed a moment ago, so ask again with a node read anew.
//
// A critical pod that is refused for resources alone may have others end for it:
// [Rules.Preempt] names them.
//
// Pods that have ended ([Admissible]) are not judged at all.
package admission
