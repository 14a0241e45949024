// Package status makes pod statuses from facts and publishes them. It owns what
// was published; nobody else writes a pod's status.
//
// [Project] is pure: the specification, what the runtime holds and what the
// probes found go in, an API status comes out. The [Writer] sends it: the
// statuses of different pods in parallel, those of one pod in order, each as one
// PATCH with no read before it, and only when something changed. News that nobody
// acts on wait a moment for what follows, see [pressing]. What another client writes
// over a status is seen by the watch of pods, and the status is sent again, at most once
// in 10 s for a pod (docs/decisions/0120). When a pod is
// finished and its deletion was asked for, the writer deletes the API object
// after its last status has arrived.
//
// Rules that hold for every status:
//
//   - A phase that ended a pod is never taken back.
//   - A pod reaches such a phase only when nothing of it lives and its place is free:
//     the scheduler sends the next one there as soon as it sees that.
//   - Conditions of other writers are left alone.
//   - The transition time of a condition moves only with its status.
package status
