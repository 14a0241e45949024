// Package podsync gives every pod a worker that brings what runs to what should
// run. It owns the life-cycle state of pods: whether one is going and why, what
// is under way for it, and whether it is finished.
//
// A wake-up carries only the UID. The worker then gathers one podplan.Input from
// the stores, asks podplan.Decide what to do, and starts the steps as tasks, each
// in a goroutine of its own, so that a worker never waits for a runtime call, a
// hook or an image. A task that is done re-reads its pod from the runtime and
// wakes the worker: effects are not assumed, they come back through the stores.
//
// States of a pod, each computed from facts and only moving forward:
//
//	waiting   another pod of the same full name has not ended yet
//	syncing   wanted; the plan brings it forward
//	going     is to end: deleted, gone from its source, rejected, evicted,
//	          over its deadline, or done; never taken back
//	stopped   nothing of it lives; volumes are released, its cgroup is removed
//	finished  all is released; the API object may go
//	gone      no source knows it, the runtime holds nothing, its directories
//	          are removed; the worker ends
//
// Locks: Syncer.mu guards the table of workers and the full names; worker.mu
// guards what tasks and the worker's turn share. Neither is held over a call
// that leaves the package.
package podsync
