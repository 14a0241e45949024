// Package admission decides whether a new pod is admitted to this node.
//
// It holds no state: [Rules.Admit] is a pure function of the pod, the node, its
// allocatable resources and the admitted pods. The scheduler has checked most of it
// before, but from an older state, and a pod may be bound without the scheduler. The
// checks have a fixed order, and the first rejection counts.
//
// A rejection is final for the pod: it fails and is never started. Only
// [ReasonNodeAffinity] is checked again by the caller, with the node read from the API
// server: its labels may have just changed.
//
// A critical pod that is refused for resources alone may preempt others: [Rules.Preempt]
// returns the victims.
//
// Admission is not decided for pods that have terminated ([Admissible]).
package admission
