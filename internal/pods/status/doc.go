// Package status is the status manager: it computes pod statuses and publishes them. No
// other part writes a pod's status.
//
// [Project] is a pure function from the specification, the observed containers and the
// probe results to an API status. The [Writer] sends it: the statuses of different pods in
// parallel, those of one pod in order, each as one PATCH without a GET before it, and only
// when it changed. Changes that no other component acts on are delayed and merged with
// later ones, see [pressing]. When the watch of pods shows that another client has
// overwritten a status, it is sent again, at most once in 10 s for a pod
// (docs/decisions/0120). When a pod is finished and its deletion was requested, the writer
// deletes the API object after the last status was written.
//
// Rules that hold for every status:
//
//   - A terminal phase is final.
//   - A pod reaches a terminal phase only when nothing of it runs and its resources are
//     released: the scheduler reuses them as soon as it sees the phase.
//   - Conditions of other clients are not changed.
//   - The transition time of a condition moves only with its status.
package status
