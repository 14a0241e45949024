// Package timeline records the steps of a pod over time, and the CRI calls that each step
// made.
//
// A [Line] belongs to one pod and is bounded: it keeps the first steps, which are the
// pod's start, and the newest of the later ones. A step is carried by the context of its
// work ([With]), so that the code that makes a call can record it without knowing the pod
// ([From]). A Line is only read when an explanation is requested.
//
// Locks: Line.mu guards a line and its steps; it is held for a few assignments.
package timeline
