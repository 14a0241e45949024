// Package timeline remembers where the time of a pod went: the steps that were
// taken for it, and the calls to the runtime that each step made.
//
// A [Line] belongs to one pod and is bounded: the first steps, which are the pod's
// start, are kept for as long as the pod is known, and of the later ones the
// newest. A step travels in the context of its work ([With]), so that whoever makes
// a call for it can note that without knowing the pod ([From]). Nothing reads a
// Line before somebody asks.
//
// Locks: Line.mu guards a line and its steps; it is held for a few assignments.
package timeline
