package podplan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// syncing plans the steps of a pod in state Syncing.
type syncing struct {
	*decision
	// starting is set when a container is being started: the next one waits for
	// it and its postStart hook, so that containers start in order.
	starting bool
}

func (d *syncing) run() {
	in := &d.in
	d.starting = d.anyBusy(Start)
	d.watchDeadline()
	d.forgetRestarts()
	if in.LogsUnread {
		d.plan.waitFor(Wait{Kind: WaitLogs})
		d.act(Step{Verb: ReadLogs, Target: ThePod, Reason: "the attempt of a new container is not known"})
		d.tend()
		return
	}
	change := d.sandboxChange()
	if change == sandboxKeep && d.restartAll() {
		return
	}
	d.prune()
	switch change {
	case sandboxKeep:
	case sandboxDone:
		// No container is started again. One that still runs has lost its sandbox.
		for _, c := range in.Have.Containers {
			if c.State == pod.StateRunning || c.State == pod.StateUnknown {
				d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseSandboxChanged, "sandbox is gone")
			}
		}
		return
	default:
		d.replaceSandbox(string(change))
		d.images()
		return
	}
	d.images()
	d.resize()
	if !in.VolumesReady || in.ClaimsPending || in.DevicesPending {
		if !in.VolumesReady {
			d.plan.waitFor(Wait{Kind: WaitVolumes})
		}
		d.waitForDevices()
		d.tend()
		return
	}
	d.ephemeral()
	if !d.initContainers() {
		return
	}
	for i := range in.Pod.Spec.Containers {
		d.container(pod.Regular, &in.Pod.Spec.Containers[i])
	}
}

// watchDeadline wakes the pod when its active deadline is over.
func (d *syncing) watchDeadline() {
	if until, ok := d.in.activeDeadline(); ok {
		d.plan.wakeAt(until)
	}
}

// forgetRestarts clears the record of a restart of all containers once the stored status shows the restart.
func (d *decision) forgetRestarts() {
	if d.in.RestartsRecorded && len(d.in.Recreated) == 0 {
		d.act(Step{Verb: WriteRestarts, Target: ThePod, Reason: "the stored status shows the restart"})
	}
}

// resize writes the allocated resources to the pod's cgroup and to its containers. Containers that have to be restarted
// are stopped before that, and start again after it.
func (d *syncing) resize() {
	if need := &d.in.Resize; need.Open && len(need.Restart) == 0 {
		d.act(Step{Verb: Resize, Target: ThePod, Reason: "allocated resources are not actuated"})
	}
}

// resizing reports whether containers wait for a resize of the pod's cgroup.
func (d *syncing) resizing() bool { return d.in.Resize.Open && !d.in.Resize.Failing }

// tend handles the running containers of a pod that cannot start others yet.
func (d *syncing) tend() {
	for kind, spec := range pod.Containers(d.in.Pod) {
		if c, ok := d.in.Have.Latest(spec.Name); ok && c.State == pod.StateRunning && kind != pod.Ephemeral {
			d.keep(kind, spec, c)
		}
	}
}

func (d *syncing) ephemeral() {
	for i := range d.in.Pod.Spec.EphemeralContainers {
		spec := (*v1.Container)(&d.in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		c, ok := d.view.Instance(spec.Name)
		if !ok || c.State == pod.StateCreated {
			d.start(pod.Ephemeral, spec, "not created", c, ok)
		}
	}
}

// initContainers plans the steps of the init containers and reports whether the regular ones may run.
func (d *syncing) initContainers() bool {
	in := &d.in
	initialized := d.view.anyRegular()
	begun := -1 // the last that has begun in this sandbox: the sidecars before it have all started once
	for i := range in.Pod.Spec.InitContainers {
		if c, ok := in.Have.Latest(in.Pod.Spec.InitContainers[i].Name); ok && inNewestSandbox(in.Have, c) {
			begun = i
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		spec := &in.Pod.Spec.InitContainers[i]
		kind := pod.InitKind(spec)
		if kind == pod.Init && initialized {
			continue
		}
		_, there := in.Have.Latest(spec.Name)
		if kind == pod.Init && !there && i < begun {
			continue // it had succeeded before the runtime lost it, because a later one has begun
		}
		passed := initialized || kind == pod.Sidecar && there && i < begun // its restarts do not delay others
		if !d.container(kind, spec) && !passed {
			d.plan.waitFor(initWait(kind, spec.Name))
			return false
		}
	}
	return true
}

func initWait(kind pod.Kind, name string) Wait {
	if kind == pod.Sidecar {
		return Wait{Kind: WaitSidecar, Target: Container(name)}
	}
	return Wait{Kind: WaitInit, Target: Container(name)}
}

// container plans the steps of one container. It reports whether the containers after it may start: an init container
// has succeeded, another one has started.
func (d *syncing) container(kind pod.Kind, spec *v1.Container) bool {
	in := &d.in
	c, ok := d.view.Instance(spec.Name)
	if !ok {
		d.start(kind, spec, "not created", c, false)
		return false
	}
	switch c.State {
	case pod.StateCreated:
		d.start(kind, spec, "created and never started", c, true)
		return false
	case pod.StateRunning:
		return d.keep(kind, spec, c)
	case pod.StateUnknown:
		d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseUnknownState, "the runtime cannot tell its state")
		return false
	}
	if !inNewestSandbox(in.Have, c) {
		// A container that ended in an earlier sandbox is done only if it is not restarted; init containers run again in
		// every sandbox.
		if kind == pod.Init || kind == pod.Sidecar || d.view.ShouldRestart(kind, spec, c) {
			d.restart(kind, spec, c)
			return false
		}
		return true
	}
	if kind == pod.Init && d.view.Succeeded(kind, c) {
		if c.ID == "" {
			d.start(kind, spec, "lost, and nothing has begun after it", c, false)
			return false
		}
		return true
	}
	if d.view.ShouldRestart(kind, spec, c) {
		d.restart(kind, spec, c)
		return false
	}
	return kind == pod.Regular
}

// keep stops a running container if its image has changed, a resize requires its restart, or a probe has failed. It
// reports whether the container has started.
func (d *syncing) keep(kind pod.Kind, spec *v1.Container, c pod.Container) bool {
	in := &d.in
	probe := in.Probes[c.ID]
	switch {
	case kind != pod.Init && c.Hash != pod.Hash(spec):
		d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseSpecChanged, "the image in the specification changed")
	case in.Resize.Restart[spec.Name]:
		d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseResize, "its new resources need a restart")
	case probe.StartupFailed:
		d.stop(c, in.Now.Add(probeGrace(in.Pod, spec.StartupProbe)), CauseStartup, "startup probe failed")
	case probe.LivenessFailed:
		d.stop(c, in.Now.Add(probeGrace(in.Pod, spec.LivenessProbe)), CauseLiveness, "liveness probe failed")
	}
	return kind != pod.Init && probe.Started
}

func probeGrace(p *v1.Pod, probe *v1.Probe) time.Duration {
	if probe != nil && probe.TerminationGracePeriodSeconds != nil && p.DeletionTimestamp == nil {
		return pod.Seconds(*probe.TerminationGracePeriodSeconds)
	}
	return pod.Grace(p)
}
