// Package podsync has a worker for each pod, which reconciles what runs with what is desired. It owns the life-cycle
// state of pods: the state of each pod, why it is terminated, and which tasks are under way for it.
//
// A worker is an actor. One goroutine owns all of its state. Others put wake-ups, evictions, questions and the outcomes
// of tasks into its mailbox, and never wait for it. For each mail the worker takes a turn:
//
//	receive   the mail, and apply the outcomes of tasks
//	observe   gather the facts at hand into a podplan.Input
//	prepare   request the volumes, claims, probes and devices that the pod needs
//	decide    podplan.Decide computes the state of the pod and the steps to take
//	perform   start the steps, each as a task with a goroutine of its own
//	publish   pass the facts of the pod's status on
//
// A turn calls neither the runtime, nor the API server, nor the disk. A task does, and does not access the worker: it
// gets what it needs when it is started and returns an outcome. A task on the runtime ends when its effect is seen:
// effects are not assumed, they come back through the stores.
//
// The states of a pod are those of [podplan.State]; podplan decides all of them.
//
// Locks: Syncer.mu guards the table of workers; the mailbox of a worker may be locked under it. The board, the full
// names, mailboxes and journals have locks of their own, held for a few assignments. A journal has another one that is
// held while it is written, by tasks alone.
package podsync
