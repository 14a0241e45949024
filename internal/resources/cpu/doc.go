// Package cpu hands out whole CPUs. A container of a Guaranteed pod that asks for a
// whole number of them gets as many for itself; all others share what is left.
//
// [Pool] owns which CPUs are whose, and the state file that says so to an agent after
// this one. Which CPUs a request gets is a pure choice over the layout of the machine
// and what is free (choice.go, spread.go, cache.go): whole parts first, and of what
// is broken already the most broken part.
//
// A CPU belongs to one container, or is shared. The reserved ones are never anybody's
// own. There are two exceptions, both within one pod: what an ordinary init container
// had the containers after it may get again, for it has ended by then.
//
// What is shared shrinks when somebody gets CPUs of its own. Containers that run
// already are told by UpdateContainerResources: [Mover] looks after them whenever the
// Pool or the runtime has news, and once in a period.
//
// Locks: Pool.mu guards the assignments and is held while the file is written; it is
// never held over a call to another part. The Mover has a goroutine of its own and no
// lock.
package cpu
