// Package shutdown ends the pods in order when the machine shuts down.
//
// It owns whether the node is leaving, the lock that has the machine wait, and the
// file that tells of the last shutdown. It hears of shutdowns through a [Session]
// with the login manager, and reads which pods there are from whoever hands them in.
// Who ends when, and how long is waited, is the pure [Plan].
//
// States of a [Watcher], by what the login manager says:
//
//	staying   a lock is held; nothing happens
//	leaving   announced: the node says that it is not ready and takes no pods, and
//	          the groups of the plan are ended one after another, those of the least
//	          priority first; each is waited for until all it held is released, or
//	          its period is over. Then the lock is let go.
//	staying   again, if the shutdown is called off: pods that were not told yet live
//	          on, and a lock is held again
//
// A connection that is lost is made again after a second. What was announced
// meanwhile is asked for, so an agent that was killed in a shutdown goes on with it,
// without a lock: the login manager gives none any more.
//
// Locks: Watcher.mu guards what Leaving and the metrics show. All else belongs to
// the goroutine of Run.
package shutdown
