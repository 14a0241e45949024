// Package allocation owns what each pod was granted of the node, and what of that
// its containers have in force.
//
// A pod's specification is what its owner wants now. What it was granted is fixed
// when it is admitted, and changes only when a resize is accepted (KEP-1287). What
// it has in force is what containers were started with or updated to. All other
// parts go by what was granted: [Ledger.Consider] lays it over the specification.
//
//	wanted ──Consider: fits?──► granted ──Gap, Plan: podsync does it──► in force
//
// A resize in its states, each shown as a condition of the pod:
//
//	pending Infeasible   it can never be had here; stays until the wish changes
//	pending Deferred     not now; asked again when room appears, and by the clock
//	in progress          granted and not yet in force
//	in progress, Error   a step failed; it is tried again
//	(none)               wanted = granted = in force
//
// The ledger also keeps the account of the pods that take up the node: admissions
// and resizes happen one after another, each seeing those before it. What runs
// already is counted before anything new is judged, and what has arrived is judged
// in the order of its creation.
//
// What is granted and in force is written to two files below the agent's
// directory, in upstream's form, shortly after it changed. Nothing waits for that
// but the restart of a container with other resources: what a file lacks is taken
// from the pod's stored status, else from its specification.
//
// Decisions are pure (feasible.go, order.go, gap.go, plan.go, preempt in package
// admission). Ledger.mu guards all state; under it only functions of the
// configuration are called that do not block and do not call back.
package allocation
