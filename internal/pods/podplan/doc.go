// Package podplan decides what to do next for one pod. It is pure: no clock, no
// logger, no call; everything it goes by is in its [Input], and the same input
// always gives the same [Plan].
//
// A plan may be partial. Its steps are those that can be taken now, each safe to
// repeat; what they change comes back through the next input. Where nothing can
// be done yet, the plan says when to look again, and what is waited for.
//
// The order of a pod's life, each line waiting for the one above:
//
//	sandbox      one, ready, of the network mode asked for
//	init         one after the other; a sidecar is passed when it has started
//	regular      all, in the order of the specification
//	going        all are told; regular containers stop together, then sidecars in
//	             reverse
//	stopped      nothing lives; sandboxes are stopped
//	removed      only when no source knows the pod any more
package podplan
