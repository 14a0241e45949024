package podplan

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// ReasonLost is the reason of a container that was recorded as created and that
// the runtime does not hold any more.
const ReasonLost = "ContainerStatusUnknown"

// View is what is known of the containers of a pod: what the API server and the runtime have of them, and what only
// this agent knows.
type View struct {
	Pod  *v1.Pod // with the status that the API server has
	Have pod.Runtime
	// StoppedForRestart are containers that were stopped to be started again, by ID: their exit status does not show
	// whether they succeeded.
	StoppedForRestart map[string]bool
	// Recreated are the containers that a restart of all containers has removed or will remove, and the attempt as which
	// each starts again. The stored status shows that only later, because the API server may be unavailable. Without
	// Recreated the containers would be taken for lost.
	Recreated map[string]int
}

// stoppedForRestart reports whether the container ended because the agent stopped it to start it again.
func (v View) stoppedForRestart(c pod.Container) bool {
	return c.State == pod.StateExited && v.StoppedForRestart[c.ID]
}

// WasStoppedForRestart is stoppedForRestart for parts that show the container.
func (v View) WasStoppedForRestart(c pod.Container) bool { return v.stoppedForRestart(c) }

// Instance returns the newest instance of a container. One that the pod's stored status has and that the runtime does
// not hold any more ended as the stored status shows; if that does not show its end, it counts as killed. An init
// container that the runtime does not hold counts as succeeded if a regular container was created after it.
func (v View) Instance(name string) (pod.Container, bool) {
	c, held := v.Have.Latest(name)
	s, known := v.recorded(name)
	if held && !(known && lostSince(s, c, v.Have)) {
		return c, true
	}
	if !held && (!known || s.State.Terminated == nil) && v.passedInit(name) {
		return pod.Container{
			Name:    name,
			State:   pod.StateExited,
			Reason:  "Completed",
			Attempt: int(s.RestartCount),
			Message: "Unable to get init container status from container runtime and pod has been initialized, " +
				"treat it as exited normally",
		}, true
	}
	if !known || s.ContainerID == "" && s.State.Running == nil && s.State.Terminated == nil && !recordedLost(s) {
		return pod.Container{}, false
	}
	lost := pod.Container{
		Name:     name,
		State:    pod.StateExited,
		ExitCode: 137,
		Reason:   ReasonLost,
		Attempt:  int(s.RestartCount),
		Message:  "The container could not be located when the pod was terminated",
	}
	t := s.State.Terminated
	if t == nil && s.State.Waiting != nil {
		t = s.LastTerminationState.Terminated // it was waiting to be started again
	}
	if t != nil && t.Reason != ReasonLost {
		lost.ExitCode, lost.Reason, lost.Message = t.ExitCode, t.Reason, t.Message
		lost.StartedAt, lost.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
	}
	return lost, true
}

// passedInit reports whether the name is that of an init container which must have succeeded, because a regular
// container was created after it. A restart of all containers removes those that are to run again.
func (v View) passedInit(name string) bool {
	if kind, _, ok := pod.Find(v.Pod, name); !ok || kind != pod.Init || !v.anyRegular() {
		return false
	}
	_, recreated := v.RecreatedAs(name)
	_, restarting := v.Trigger()
	return !recreated && !restarting
}

// anyRegular reports whether a regular container was created in the newest sandbox.
func (v View) anyRegular() bool {
	for i := range v.Pod.Spec.Containers {
		if c, ok := v.Have.Latest(v.Pod.Spec.Containers[i].Name); ok && inNewestSandbox(v.Have, c) {
			return true
		}
	}
	return false
}

// lostSince reports whether the stored status has a later instance than the runtime's newest, and the runtime does not
// hold it.
func lostSince(s v1.ContainerStatus, newest pod.Container, have pod.Runtime) bool {
	if int(s.RestartCount) <= newest.Attempt {
		return false
	}
	if recordedLost(s) {
		return true
	}
	_, id, ok := strings.Cut(s.ContainerID, "://")
	_, held := have.ByID(id)
	return ok && !held
}

// recordedLost reports whether the stored status says that the container is lost.
func recordedLost(s v1.ContainerStatus) bool {
	ended := s.State.Terminated
	if s.State.Waiting != nil {
		ended = s.LastTerminationState.Terminated
	}
	return s.ContainerID == "" && ended != nil && ended.Reason == ReasonLost
}

// recorded returns the stored status of a container, or the status from [Anew] if it was removed for a restart of all
// containers.
func (v View) recorded(name string) (v1.ContainerStatus, bool) {
	if next, anew := v.Recreated[name]; anew {
		if c, held := v.Have.Latest(name); !held || c.Attempt >= next {
			return Anew(name, next), true
		}
	}
	return stored(v.Pod, name)
}

// stored returns the status of a container that the API server has.
func stored(p *v1.Pod, name string) (v1.ContainerStatus, bool) {
	for _, list := range [][]v1.ContainerStatus{
		p.Status.InitContainerStatuses,
		p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses,
	} {
		for _, s := range list {
			if s.Name == name {
				return s, true
			}
		}
	}
	return v1.ContainerStatus{}, false
}

func (v View) anyRecorded() bool {
	for _, c := range pod.Containers(v.Pod) {
		if s, ok := v.recorded(c.Name); ok && s.ContainerID != "" {
			return true
		}
	}
	return false
}

// RecreatedAs reports whether the container was removed for a restart of all containers, and as which attempt it starts
// again.
func (v View) RecreatedAs(name string) (attempt int, ok bool) {
	s, ok := v.recorded(name)
	if !ok {
		return 0, false
	}
	return recreatedAs(s)
}

func recreatedAs(s v1.ContainerStatus) (attempt int, ok bool) {
	last := s.LastTerminationState.Terminated
	if last == nil || last.Reason != pod.ReasonRestartingAll {
		return 0, false
	}
	return int(s.RestartCount), true
}

// updateRecreated returns Recreated with the containers of a restart that is under way, and without those that have a
// later attempt since then, or whose new attempt the stored status shows.
func (v View) updateRecreated() map[string]int {
	recreated := maps.Clone(v.Recreated)
	if recreated == nil {
		recreated = map[string]int{}
	}
	for name, next := range v.recreations() {
		recreated[name] = max(recreated[name], next)
	}
	for name, next := range recreated {
		c, held := v.Have.Latest(name)
		if held && (c.Attempt > next || c.Attempt == next && v.storedAnew(name, next)) {
			delete(recreated, name)
		}
	}
	return recreated
}

// storedAnew reports whether the stored status shows that the container starts again as that attempt.
func (v View) storedAnew(name string, attempt int) bool {
	s, ok := stored(v.Pod, name)
	if !ok {
		return false
	}
	known, ok := recreatedAs(s)
	return ok && known == attempt
}

// recreations returns the containers that a restart of all containers has removed or will remove, with the number of
// their next attempt.
func (v View) recreations() map[string]int {
	v.Recreated = nil // only the stored status counts here
	_, triggered := v.Trigger()
	if !triggered && !restartStored(v.Pod) {
		return nil
	}
	next := map[string]int{}
	for kind, spec := range pod.Containers(v.Pod) {
		if kind == pod.Ephemeral {
			continue
		}
		_, held := v.Have.Latest(spec.Name)
		if c, ok := v.Instance(spec.Name); ok && (triggered || !held) {
			next[spec.Name] = c.Attempt + 1
		}
	}
	return next
}
