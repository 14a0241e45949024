package podplan

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Phase computes the pod's phase from the states of its containers. Sidecars and ephemeral containers never count. A
// terminating pod without running containers is Succeeded or Failed, regardless of its restart policy. A pod that is
// not terminating and of which all containers are being restarted is Running, even if they have all ended.
func (v View) Phase(terminating bool) v1.PodPhase {
	phase := v.phase(terminating)
	if phase == v1.PodSucceeded || phase == v1.PodFailed {
		if _, anew := v.Trigger(); anew && !terminating {
			return v1.PodRunning
		}
	}
	return phase
}

func (v View) phase(terminating bool) v1.PodPhase {
	p, have := v.Pod, v.Have
	var waiting, running, unknown, stopped, succeeded, restartable int
	for kind, spec := range pod.Containers(p) {
		c, ok := v.Instance(spec.Name)
		switch kind {
		case pod.Init:
			switch {
			case !ok || c.State == pod.StateCreated || c.State == pod.StateRunning:
				if !v.Initialized() {
					waiting++
				}
			case c.State == pod.StateExited && !v.Succeeded(kind, c):
				if !v.ShouldRestart(kind, spec, c) {
					return v1.PodFailed
				}
			}
		case pod.Regular:
			switch {
			case ok && c.State == pod.StateCreated && c.Attempt > 0:
				stopped++ // it will be started again, and counts as before its removal
				restartable++
			case !ok || c.State == pod.StateCreated:
				waiting++
			case c.State == pod.StateRunning:
				running++
			case c.State == pod.StateExited:
				stopped++
				if v.Succeeded(kind, c) {
					succeeded++
				}
				if v.ShouldRestart(kind, spec, c) {
					restartable++
				}
			default:
				unknown++
			}
		}
	}
	switch {
	case terminating && running+unknown == 0 && !have.Live():
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

// Done reports whether the pod has reached the end of its work by itself: every regular container has ended and none is
// to be restarted, or an init container has failed and is not restarted.
func (v View) Done() bool {
	phase := v.Phase(false)
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

// Initialized reports whether the init containers of the pod are done: each has succeeded and each sidecar was created,
// or a regular container was created in the newest sandbox, which happens only after that.
func (v View) Initialized() bool {
	p, have := v.Pod, v.Have
	if v.anyRegular() {
		return true
	}
	for kind, spec := range pod.Containers(p) {
		if kind != pod.Init && kind != pod.Sidecar {
			continue
		}
		c, ok := v.Instance(spec.Name)
		if !ok || !inNewestSandbox(have, c) {
			return false
		}
		if kind == pod.Init && (c.State != pod.StateExited || !v.Succeeded(kind, c)) {
			return false
		}
	}
	return true
}

// inNewestSandbox reports whether c belongs to the newest sandbox. If no sandbox is left that is unknown: the result is
// true, so that a finished pod stays finished.
func inNewestSandbox(have pod.Runtime, c pod.Container) bool {
	return len(have.Sandboxes) == 0 || c.SandboxID == "" || c.SandboxID == have.Sandboxes[0].ID
}
