// Package eviction is the eviction manager: when memory, disk or process IDs run low, it sets pressure conditions,
// reclaims node-level resources, and evicts pods one at a time. It also evicts pods that exceed a limit of local
// ephemeral storage.
//
// It owns the pressure conditions. It reads what is available through [Source] and the pods through Config.Pods, and
// evicts pods through Config.Evict. A [State] is kept between checks.
//
// Decisions are pure: [State.Evaluate] (which thresholds are met, which of them have to be acted on, and the pressure
// conditions), [Choose] (which pod is evicted), [Breaches] (which pods exceed a limit of their own) and [reclaims]
// (what is removed first). A threshold whose signal could not be measured, or whose measurement is stale, is not met. A
// measurement is acted on once only. A pod without known usage is not chosen.
//
// Run has two loops, each with its own state:
//
//	memory  checks more often the less is available: before the fastest program could have used half of what is above
//	        the threshold
//	disk    checks every ten seconds, also process IDs and limits
//
// The memory loop does not wait for a disk. While memory is below a threshold the disk loop evicts no pod for a
// node-level signal: memory comes first, and one pod is evicted at a time.
//
// Locks: Manager.mu guards the pressure conditions and the pods that are being evicted. It is never held during a call:
// the owner of the pods reads the pressure conditions under a lock of its own.
package eviction
