package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// hold is how long news that nobody acts on waits for more of it. Most pods are
// ready, or gone, within that time, and then one write says all there is to say:
// the API server is spared the others, and so is the rate at which this node may
// ask it, which a pod that has become ready would otherwise wait for.
const hold = 300 * time.Millisecond

// calmPeriod is the least time between two writes of such news that did not turn
// into more. When many pods come at once, what is allowed to this node at the API
// server is for those that are ready.
const calmPeriod = 100 * time.Millisecond

// pressing reports whether somebody acts on the difference between what was told
// and what is so now: on a pod that comes into another phase, becomes ready or
// stops being so, or is restarted as a whole; on a container that ended, or waits because something is
// wrong. Steps on the way there are not pressing, nor is anything about a pod
// that is being deleted: services have let go of it already, and the last status
// goes out with the deletion of the object in any case.
func pressing(told, now v1.PodStatus, deleting bool) bool {
	return !deleting && (told.Phase != now.Phase && now.Phase != v1.PodPending ||
		told.Reason != now.Reason ||
		isTrue(told.Conditions, v1.AllContainersRestarting) != isTrue(now.Conditions, v1.AllContainersRestarting) ||
		isTrue(told.Conditions, v1.PodReady) != isTrue(now.Conditions, v1.PodReady) ||
		anyPresses(told.InitContainerStatuses, now.InitContainerStatuses, initPresses) ||
		anyPresses(told.ContainerStatuses, now.ContainerStatuses, containerPresses) ||
		anyPresses(told.EphemeralContainerStatuses, now.EphemeralContainerStatuses, ephemeralPresses))
}

func isTrue(list []v1.PodCondition, t v1.PodConditionType) bool {
	c := find(list, t)
	return c != nil && c.Status == v1.ConditionTrue
}

// anyPresses asks about each container beside what was told of it, which may be
// nothing.
func anyPresses(told, now []v1.ContainerStatus, presses func(told, now v1.ContainerStatus) bool) bool {
	return slices.ContainsFunc(now, func(n v1.ContainerStatus) bool {
		var t v1.ContainerStatus
		if i := slices.IndexFunc(told, func(c v1.ContainerStatus) bool { return c.Name == n.Name }); i >= 0 {
			t = told[i]
		}
		return presses(t, n)
	})
}

func containerPresses(told, now v1.ContainerStatus) bool {
	if now.RestartCount != told.RestartCount || now.State.Terminated != nil && told.State.Terminated == nil {
		return true
	}
	w := now.State.Waiting
	return w != nil && inTrouble(w.Reason) && (told.State.Waiting == nil || told.State.Waiting.Reason != w.Reason)
}

// initPresses: an init container that did what it should is a step on the way.
func initPresses(told, now v1.ContainerStatus) bool {
	done := now.State.Terminated
	return containerPresses(told, now) && !(done != nil && done.ExitCode == 0 && now.RestartCount == told.RestartCount)
}

// ephemeralPresses: somebody waits at a terminal for it to run.
func ephemeralPresses(told, now v1.ContainerStatus) bool {
	return containerPresses(told, now) || now.State.Running != nil && told.State.Running == nil
}

// inTrouble tells reasons that say what is wrong from those of every start.
func inTrouble(reason string) bool {
	return reason != pod.ReasonContainerCreating && reason != pod.ReasonPodInitializing
}
