// Package allocation keeps what is allocated to each pod, and what of that its containers have actuated.
//
// A pod's specification is what is desired now. What is allocated to it is fixed when it is admitted, and changes only
// when a resize is accepted (KEP-1287). What is actuated is what containers were started with or updated to. All other
// parts use what is allocated: [Ledger.Allocate] puts it into the specification. These are the words of upstream's
// allocation manager.
//
//	desired ──Allocate: fits?──► allocated ──Gap, Plan: podsync does it──► actuated
//
// The states of a resize, each shown as a condition of the pod:
//
//	pending Infeasible   never possible on this node; stays until the request changes
//	pending Deferred     not possible now; decided again when resources are released, and periodically
//	in progress          allocated and not yet actuated
//	in progress, Error   a step failed; it is tried again
//	(none)               desired = allocated = actuated
//
// The ledger also keeps the account of the pods that use the node's resources. Admissions and resizes are decided one
// after another, and each takes those before it into account. Running pods are counted before any new pod is judged.
// New pods are judged in the order of their creation.
//
// What is allocated and actuated is written to two files below the agent's directory, in upstream's form, shortly after
// it changed. Only the start of a container with other resources and the resize of pod-level resources wait for the
// write. What a file lacks is taken from the pod's stored status, else from its specification.
//
// Decisions are pure functions (decision.go, feasible.go, order.go, gap.go, and preemption in package admission).
// Ledger.judging is held while pods are admitted and resizes decided, one after another; resource managers may save
// their state under it. Ledger.mu guards all state and is held only to read or change it, so that the turn of a worker
// never waits for a disk. A turn only adds requests to a queue, which [Ledger.Run] and admissions decide in order.
// Events are sent, pods are woken and victims are preempted without mu.
package allocation
