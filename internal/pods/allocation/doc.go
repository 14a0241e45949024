// Package allocation owns what is allocated to each pod, and what of that
// its containers have actuated.
//
// A pod's specification is what its owner wants now. What is allocated to it is fixed when it is admitted, and changes
// only when a resize is accepted (KEP-1287). What is actuated is what containers were started with or updated to. All
// other parts go by what is allocated: [Ledger.Allocate] lays it over the specification. These are the words of
// upstream's allocation manager.
//
//	wanted ──Allocate: fits?──► allocated ──Gap, Plan: podsync does it──► actuated
//
// A resize in its states, each shown as a condition of the pod:
//
//	pending Infeasible   it can never be had here; stays until the request changes
//	pending Deferred     not now; decided again when room appears, and by the clock
//	in progress          allocated and not yet actuated
//	in progress, Error   a step failed; it is tried again
//	(none)               wanted = allocated = actuated
//
// The ledger also keeps the account of the pods that take up the node: admissions
// and resizes happen one after another, each seeing those before it. What runs
// already is counted before anything new is judged, and what has arrived is judged
// in the order of its creation.
//
// What is allocated and actuated is written to two files below the agent's
// directory, in upstream's form, shortly after it changed. Nothing waits for that
// but the restart of a container with other resources: what a file lacks is taken
// from the pod's stored status, else from its specification.
//
// Decisions are pure (decision.go, feasible.go, order.go, gap.go, plan.go, preempt in package admission).
// Ledger.judging is held while pods are admitted and resizes decided, one after another; resource managers may save
// their state under it. Ledger.mu guards all state and is held only to read or change it, so that the turn of a worker
// never waits for a disk. A turn only adds requests to a queue, which [Ledger.Run] and admissions decide in order.
// Events are sent, pods are woken and victims are preempted without mu.
package allocation
