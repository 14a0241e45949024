// Package podplan decides what to do next for one pod. It is pure: no clock, no logger, no call. Everything that it
// depends on is in its [Input], and the same input always gives the same [Plan].
//
// [Decide] computes the [State] of the pod from facts and returns the steps of that state. It is the only place that
// decides about a pod:
//
//	admit.go      Pending: full name, recovery, admission, confirmation of devices
//	terminate.go  whether, why and by when a pod is terminated, and the order of the reasons
//	run.go        Syncing: what containers need; sandbox.go, start.go, prune.go and restartall.go are parts of it
//	stop.go       Terminating: containers, sidecars in reverse, sandboxes
//	release.go    Terminated: claims, resources, volumes, cgroup; then removal from the runtime and from the disk
//
// A plan may be partial. Its steps are those that can be taken now, each safe to repeat. Their effects come back
// through the next input. If nothing can be done yet, the plan has a time to wake up at, and says what is waited for.
//
// Steps and waits are typed. A [Target] is what a step is about, and a [Key] identifies work of which only one can be
// under way at a time.
package podplan
