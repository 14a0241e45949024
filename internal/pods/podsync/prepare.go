package podsync

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// prepare requests from other parts what the pod needs, and adds their results to the input.
func (g gatherer) prepare(in *podplan.Input) {
	if in.Pod == nil || in.State != podplan.Syncing && in.State != podplan.Terminating {
		return
	}
	g.w.shown.seeIPs(in.Pod, in.Have, &g.w.s.cfg.Node)
	syncing := in.State == podplan.Syncing
	if syncing {
		g.prepareContainers(in)
	}
	v := in.View()
	v.Pod = g.w.source.stored()
	g.w.s.cfg.Probes.Sync(v, g.w.shown.podIPs, !syncing)
	in.Probes = g.probes(in)
}

// prepareContainers requests what containers need before they can start.
func (g gatherer) prepareContainers(in *podplan.Input) {
	cfg, spec := &g.w.s.cfg, in.Pod
	in.NetworkReady = g.networkReady(spec)
	cfg.Objects.Register(spec)
	cfg.Volumes.Want(spec)
	in.VolumesReady = g.volumesReady()
	cfg.Claims.Want(spec)
	claimed, _ := cfg.Claims.Preparer.Ready(g.w.uid) // the part that prepares them logs why not
	in.ClaimsPending = !claimed
	g.w.await(cfg.Resources.Late(spec))
	in.DevicesPending = g.w.waiting.late.Waits()
	in.LogAttempts, in.LogsUnread = g.logAttempts(in)
	in.Admission.Rejection = g.w.admission.rejection
	if g.w.admission.rejection == nil {
		in.Resize = g.needOf(in)
	}
}

// probes returns the probe results of running containers.
func (g gatherer) probes(in *podplan.Input) map[string]podplan.Probe {
	probes := map[string]podplan.Probe{}
	for _, c := range in.Have.Containers {
		if c.State == pod.StateRunning {
			r := g.w.s.cfg.Probes.Result(in.Pod, c)
			probes[c.ID] = podplan.Probe{
				Started:        r.Started,
				StartupFailed:  r.StartupFailed,
				LivenessFailed: r.LivenessFailed,
			}
		}
	}
	for key, t := range in.Busy {
		c, ok := in.Have.Latest(key.Target.Name)
		if ok && t.Verb == podplan.Start && hasPostStart(in.Pod, key.Target.Name) {
			probes[c.ID] = podplan.Probe{} // containers that wait for the hook keep waiting
		}
	}
	return probes
}

// hasPostStart reports whether a container has a postStart hook, and so counts as started only after the hook. Other
// containers have started when the runtime reports them as running, even if the call that starts them has not returned
// yet.
func hasPostStart(p *v1.Pod, name string) bool {
	_, c, ok := pod.Find(p, name)
	return ok && c.Lifecycle != nil && c.Lifecycle.PostStart != nil
}

// logAttempts returns the attempts that log files show of containers which the runtime does not hold, as far as they
// were read, and whether any has yet to be read.
func (g gatherer) logAttempts(in *podplan.Input) (attempts map[string]int, unread bool) {
	attempts = map[string]int{}
	view := in.View()
	for _, spec := range pod.Containers(in.Pod) {
		if _, ok := view.Instance(spec.Name); ok {
			continue
		}
		read, known := g.w.restarts.logAttempts[spec.Name]
		if asked, ok := g.w.images[spec.Name]; ok {
			read, known = asked.attempt, true
		}
		attempts[spec.Name] = read
		unread = unread || !known
	}
	return attempts, unread
}

// networkReady reports whether the runtime's network is ready, and records in an event when a pod that needs it waits.
func (g gatherer) networkReady(spec *v1.Pod) bool {
	err := g.w.s.cfg.Node.NetworkReady()
	if err == nil || spec.Spec.HostNetwork {
		g.w.shown.networkEvent = false
		return err == nil
	}
	if !g.w.shown.networkEvent {
		g.w.shown.networkEvent = true
		g.w.s.cfg.Events.Pod(spec, "", v1.EventTypeWarning, pod.EventNetworkNotReady,
			"network is not ready: "+err.Error())
	}
	return false
}

// volumesReady reports whether the volumes are mounted. The part that mounts them records why not; if
// they cannot be mounted here at all, the pod is rejected.
func (g gatherer) volumesReady() bool {
	ready, err := g.w.s.cfg.Volumes.Preparer.Ready(g.w.uid)
	var no *pod.Rejection
	if errors.As(err, &no) {
		g.w.reject(no, true)
	}
	return ready
}
