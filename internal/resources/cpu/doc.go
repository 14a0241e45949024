// Package cpu is the CPU manager: it allocates exclusive CPUs. A container of a Guaranteed pod that requests a whole
// number of CPUs gets that many exclusively. All other containers share the rest, the shared pool.
//
// [Manager] owns the assignments and their checkpoint, which the next agent restores. The selection of CPUs is a pure
// function of the machine's layout and the free CPUs (choice.go, spread.go, cache.go). It prefers whole parts of the
// machine, and among parts that are in use already those with the fewest free CPUs.
//
// A CPU is exclusive to one container or in the shared pool. Reserved CPUs are never exclusive. CPUs are reused within
// a pod only: the CPUs of an ordinary init container can be allocated to containers after it, because the init
// container has terminated by then.
//
// The shared pool shrinks when CPUs are allocated exclusively. [Reconciler] updates running containers with
// UpdateContainerResources whenever the Manager or the runtime reports a change, and once per reconcile period.
//
// Locks: Manager.mu guards the assignments and is held while the checkpoint is written. It is never held during a call
// to another part. The Reconciler has a goroutine of its own and no lock.
package cpu
