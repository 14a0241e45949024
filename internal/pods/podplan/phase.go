package podplan

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// ReasonLost is the reason of a container that was recorded as created and that
// the runtime does not hold any more.
const ReasonLost = "ContainerStatusUnknown"

// Instance is the newest instance of a container. One that the pod's stored
// status tells of and that the runtime has lost is shown as killed: nobody
// knows how it ended, and it did not end well. An init container that the pod has got
// past has succeeded.
func Instance(p *v1.Pod, have pod.Runtime, name string) (pod.Container, bool) {
	c, ok := have.Latest(name)
	s, told := recorded(p, name)
	if ok && !(told && lostSince(s, c, have)) {
		return c, true
	}
	if !ok && (!told || s.State.Terminated == nil) && passedInit(p, have, name) {
		return pod.Container{Name: name, State: pod.StateExited, Reason: "Completed", Attempt: int(s.RestartCount),
			Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"}, true
	}
	if !told || s.ContainerID == "" && s.State.Running == nil && s.State.Terminated == nil && !toldLost(s) {
		return pod.Container{}, false
	}
	lost := pod.Container{Name: name, State: pod.StateExited, ExitCode: 137, Reason: ReasonLost, Attempt: int(s.RestartCount),
		Message: "The container could not be located when the pod was terminated"}
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

// passedInit reports whether the name is that of an init container which must have
// succeeded, for a regular container was created after it. A restart of all containers
// removes those that are to run again.
func passedInit(p *v1.Pod, have pod.Runtime, name string) bool {
	if kind, _, ok := pod.Find(p, name); !ok || kind != pod.Init || !anyRegular(p, have) {
		return false
	}
	_, renewed := Renewed(p, name)
	_, restarting := Trigger(p, have)
	return !renewed && !restarting
}

// anyRegular reports whether a regular container was created in the newest sandbox.
func anyRegular(p *v1.Pod, have pod.Runtime) bool {
	for i := range p.Spec.Containers {
		if c, ok := have.Latest(p.Spec.Containers[i].Name); ok && inNewestSandbox(have, c) {
			return true
		}
	}
	return false
}

// lostSince reports whether the stored status tells of a later instance than the
// runtime's newest, and the runtime does not hold it.
func lostSince(s v1.ContainerStatus, newest pod.Container, have pod.Runtime) bool {
	if int(s.RestartCount) <= newest.Attempt {
		return false
	}
	if toldLost(s) {
		return true
	}
	_, id, ok := strings.Cut(s.ContainerID, "://")
	_, held := have.ByID(id)
	return ok && !held
}

// toldLost reports whether the stored status says that the container is lost.
func toldLost(s v1.ContainerStatus) bool {
	ended := s.State.Terminated
	if s.State.Waiting != nil {
		ended = s.LastTerminationState.Terminated
	}
	return s.ContainerID == "" && ended != nil && ended.Reason == ReasonLost
}

func recorded(p *v1.Pod, name string) (v1.ContainerStatus, bool) {
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == name {
				return s, true
			}
		}
	}
	return v1.ContainerStatus{}, false
}

// Phase is where the pod is in its life, from what its containers are. Sidecars
// and ephemeral containers never count. A pod that is going and of which
// nothing lives has reached its end whatever its restart policy; one of which all
// containers are being restarted has not, whatever they have come to.
func Phase(p *v1.Pod, have pod.Runtime, going bool) v1.PodPhase {
	phase := phase(p, have, going)
	if phase == v1.PodSucceeded || phase == v1.PodFailed {
		if _, anew := Trigger(p, have); anew && !going {
			return v1.PodRunning
		}
	}
	return phase
}

func phase(p *v1.Pod, have pod.Runtime, going bool) v1.PodPhase {
	var waiting, running, unknown, stopped, succeeded, restartable int
	for kind, spec := range pod.Containers(p) {
		c, ok := Instance(p, have, spec.Name)
		switch kind {
		case pod.Init:
			switch {
			case !ok || c.State == pod.StateCreated || c.State == pod.StateRunning:
				if !Initialized(p, have) {
					waiting++
				}
			case c.State == pod.StateExited && !Succeeded(kind, c):
				if !Restarts(p, kind, spec, c) {
					return v1.PodFailed
				}
			}
		case pod.Regular:
			switch {
			case ok && c.State == pod.StateCreated && c.Attempt > 0:
				stopped++ // on its way back, as it was a moment ago
				restartable++
			case !ok || c.State == pod.StateCreated:
				waiting++
			case c.State == pod.StateRunning:
				running++
			case c.State == pod.StateExited:
				stopped++
				if Succeeded(kind, c) {
					succeeded++
				}
				if Restarts(p, kind, spec, c) {
					restartable++
				}
			default:
				unknown++
			}
		}
	}
	switch {
	case going && running+unknown == 0 && !have.Live():
		if waiting == 0 && stopped > 0 && stopped == succeeded {
			return v1.PodSucceeded
		}
		return v1.PodFailed
	case waiting > 0 || unknown > 0:
		return v1.PodPending
	case running > 0 || restartable > 0:
		return v1.PodRunning
	case stopped > 0 && stopped == succeeded:
		return v1.PodSucceeded
	case stopped > 0:
		return v1.PodFailed
	}
	return v1.PodPending
}

// Done reports whether the pod has reached the end of its work by itself: every
// regular container has ended and none is to be restarted, or it can never get
// past an init container.
func Done(p *v1.Pod, have pod.Runtime) bool {
	phase := Phase(p, have, false)
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

// Initialized reports whether the pod has got past its init containers: each has
// succeeded and each sidecar was created, or a regular container was created in
// the newest sandbox, which could not have happened otherwise.
func Initialized(p *v1.Pod, have pod.Runtime) bool {
	if anyRegular(p, have) {
		return true
	}
	for kind, spec := range pod.Containers(p) {
		if kind != pod.Init && kind != pod.Sidecar {
			continue
		}
		c, ok := Instance(p, have, spec.Name)
		if !ok || !inNewestSandbox(have, c) {
			return false
		}
		if kind == pod.Init && (c.State != pod.StateExited || !Succeeded(kind, c)) {
			return false
		}
	}
	return true
}

// inNewestSandbox reports whether c belongs to the sandbox in force. With no
// sandbox left the question is open, and the answer yes keeps a finished pod
// finished.
func inNewestSandbox(have pod.Runtime, c pod.Container) bool {
	return len(have.Sandboxes) == 0 || c.SandboxID == "" || c.SandboxID == have.Sandboxes[0].ID
}
