// Package eviction keeps the node alive when memory, disk or process numbers run
// out: it says which pressures the node is under, has what nobody needs removed,
// and ends pods, one at a time. It also ends pods that hold more of the node's disk
// than they may.
//
// It owns the pressures. It reads what is left through [Source], the pods through
// Config.Pods, and ends them through Config.Evict; what it keeps between looks is a
// [State].
//
// Decisions are pure: [State.Judge] (which thresholds are met, which of them are to
// be acted on, which pressures there are), [Choose] (whom it hits), [Breaches] (who
// is over a limit of its own) and [reclaims] (what to remove first). Nothing is
// concluded from what could not be measured, from what is old, or from what was
// acted on before, and a pod is not chosen of which nothing is known.
//
// Run keeps two loops, each with its own state:
//
//	memory  looks the more often the less is left: a look comes before the fastest
//	        program could have taken half of what is above the threshold
//	disk    looks every ten seconds, at process numbers too, and at limits
//
// Memory does not wait for a disk. While memory is short the disk loop ends no pod
// for the node's sake: memory comes first, and it is one pod at a time.
//
// Locks: Evictor.mu guards the pressures and the pods on their way out. It is never
// held over a call: whoever keeps the pods asks for pressures under a lock of its own.
package eviction
