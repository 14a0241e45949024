package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// hold is how long a change that no other component acts on is delayed, to be merged with
// later ones. Most pods are ready, or removed, within that time. That saves requests, for
// which pods that have become ready would otherwise wait in the client's rate limiter.
const hold = 300 * time.Millisecond

// calmPeriod is the minimum time between two writes of delayed changes. When many pods
// start at once, the client's rate limit is left to those that are ready.
const calmPeriod = 100 * time.Millisecond

// pressing reports whether other components of the cluster act on the difference between
// the written and the current status: another phase or readiness, a restart of all
// containers, a container that terminated or waits because of a failure. Progress towards
// these is not pressing, nor is any change of a pod that is being deleted: endpoints have
// dropped it already, and the last status is sent with the deletion of the object.
func pressing(written, now v1.PodStatus, deleting bool) bool {
	return !deleting && (written.Phase != now.Phase && now.Phase != v1.PodPending ||
		written.Reason != now.Reason ||
		isTrue(written.Conditions, v1.AllContainersRestarting) != isTrue(now.Conditions, v1.AllContainersRestarting) ||
		isTrue(written.Conditions, v1.PodReady) != isTrue(now.Conditions, v1.PodReady) ||
		anyPresses(written.InitContainerStatuses, now.InitContainerStatuses, initPresses) ||
		anyPresses(written.ContainerStatuses, now.ContainerStatuses, containerPresses) ||
		anyPresses(written.EphemeralContainerStatuses, now.EphemeralContainerStatuses, ephemeralPresses))
}

func isTrue(list []v1.PodCondition, t v1.PodConditionType) bool {
	c := find(list, t)
	return c != nil && c.Status == v1.ConditionTrue
}

// anyPresses compares each container with its written status, which may be missing.
func anyPresses(written, now []v1.ContainerStatus, presses func(written, now v1.ContainerStatus) bool) bool {
	return slices.ContainsFunc(now, func(n v1.ContainerStatus) bool {
		var t v1.ContainerStatus
		if i := slices.IndexFunc(written, func(c v1.ContainerStatus) bool { return c.Name == n.Name }); i >= 0 {
			t = written[i]
		}
		return presses(t, n)
	})
}

func containerPresses(written, now v1.ContainerStatus) bool {
	if now.RestartCount != written.RestartCount || now.State.Terminated != nil && written.State.Terminated == nil {
		return true
	}
	w := now.State.Waiting
	return w != nil && inTrouble(w.Reason) && (written.State.Waiting == nil || written.State.Waiting.Reason != w.Reason)
}

// initPresses: the success of an init container is not pressing.
func initPresses(written, now v1.ContainerStatus) bool {
	done := now.State.Terminated
	return containerPresses(written, now) &&
		!(done != nil && done.ExitCode == 0 && now.RestartCount == written.RestartCount)
}

// ephemeralPresses: a start is pressing, because a user waits for it (kubectl debug).
func ephemeralPresses(written, now v1.ContainerStatus) bool {
	return containerPresses(written, now) || now.State.Running != nil && written.State.Running == nil
}

// inTrouble reports whether a waiting reason names a failure, not a step of every start.
func inTrouble(reason string) bool {
	return reason != pod.ReasonContainerCreating && reason != pod.ReasonPodInitializing
}
