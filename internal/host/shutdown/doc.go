// Package shutdown is the node shutdown manager: it terminates the pods in order when the machine shuts down.
//
// It owns the shutdown state of the node, the inhibitor lock, and the checkpoint of the last shutdown. Shutdowns are
// announced through a [Session] with logind. The order of termination and the periods are computed by the pure function
// [Plan].
//
// States of a [Watcher], as announced by logind:
//
//	staying   an inhibitor lock is held
//	leaving   announced: the node is not ready and rejects pods. The groups of the plan are terminated one after
//	          another, in ascending order of priority. Each group is waited for until its pods are released or its
//	          period is over. Then the lock is released.
//	staying   again, if the shutdown is cancelled: pods that are not terminating keep running, and a lock is taken
//	          again
//
// A lost connection is established again after a second. The current state is then read, so an agent that was restarted
// during a shutdown continues it, without a lock, which logind does not grant at that time.
//
// Locks: Watcher.mu guards the state that other goroutines read. All else belongs to the goroutine of Run.
package shutdown
