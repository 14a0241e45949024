package podplan

import (
	"slices"
	"time"

	"keelson/internal/pods/pod"
)

// end plans the steps of a pod that is terminated: its containers are stopped, then its sandboxes; what it holds on the
// node is released, and what is left of an orphaned pod is removed.
func (d *decision) end() {
	d.plan.Down = d.down()
	if !d.in.orphaned() {
		d.prune()
	}
	if d.in.Pod != nil && !d.in.Source.Missing {
		d.forgetRestarts()
	}
	if !d.stopAll() {
		d.plan.State = Terminating
		d.watchEnd(false)
		return
	}
	d.plan.State = Terminated
	d.watchEnd(true)
	if d.in.orphaned() {
		d.remove()
	}
	if !d.release() {
		return
	}
	d.plan.State = Released
	if d.removeDirectories() {
		d.plan.State = Gone
	}
}

// stopAll stops containers and then sandboxes, and reports whether all of them are stopped: regular containers stop
// together, then the sidecars in reverse, all within one grace period.
func (d *decision) stopAll() bool {
	in := &d.in
	if d.stopContainers() {
		d.plan.waitFor(Wait{Kind: WaitStopped})
		if d.unstoppable() {
			d.stopReadySandboxes("grace period is over, and its containers cannot be stopped")
		}
		return false
	}
	stopping := d.stopReadySandboxes("pod is terminating")
	// Sandboxes of an orphan are stopped by RemovePodSandbox.
	if !in.orphaned() && !d.stopDeadSandboxes("pod is terminating") {
		stopping = true
	}
	// A sandbox that is being created will be there when its task has ended.
	if _, creating := in.Busy[KeyOf(RunSandbox, NewSandbox)]; creating || stopping {
		d.plan.waitFor(Wait{Kind: WaitSandboxStopped})
		return false
	}
	return true
}

// stopContainers stops every container whose turn it is. The stop of those whose turn comes later is announced at once,
// so that their preStop hooks run in parallel. It reports whether any is left.
func (d *decision) stopContainers() bool {
	in := &d.in
	first, sidecars := d.alive()
	turn, later := first, sidecars
	switch last := len(sidecars) - 1; {
	case in.Termination != nil && !in.Now.Before(in.Termination.Deadline):
		turn, later = append(turn, sidecars...), nil // no time left for an order
	case len(first) == 0 && len(sidecars) > 0:
		turn, later = sidecars[last:], sidecars[:last]
	}
	for _, c := range turn {
		d.stop(c, d.deadline(c), CauseTerminating, "pod is terminating")
	}
	for _, c := range later {
		if deadline := d.deadline(c); !in.Announced[c.ID] && d.free(c.ID, deadline) {
			d.plan.step(Step{
				Verb:     AnnounceStop,
				Target:   Instance(c.ID),
				Deadline: deadline,
				Reason:   "pod is terminating",
			})
		}
	}
	if in.Termination != nil && len(sidecars) > 0 && in.Now.Before(in.Termination.Deadline) {
		d.plan.wakeAt(in.Termination.Deadline)
	}
	// A container that is being started will be seen when its task has ended.
	return d.anyBusy(Start) || len(first)+len(sidecars) > 0
}

// stopReadySandboxes stops the ready sandboxes and reports whether there are any.
func (d *decision) stopReadySandboxes(why string) bool {
	ready := false
	for _, s := range d.in.Have.Sandboxes {
		if s.Ready {
			ready = true
			d.act(Step{Verb: StopSandbox, Target: Sandbox(s.ID), Reason: why})
		}
	}
	return ready
}

// unstoppable reports whether the grace period is over and StopContainer has failed for every remaining container. Such
// containers are killed by StopPodSandbox, for which the runtime sends no SIGTERM.
func (d *decision) unstoppable() bool {
	in := &d.in
	if in.Termination == nil || in.Now.Before(in.Termination.Deadline) || d.anyBusy(Start) {
		return false
	}
	return !slices.ContainsFunc(in.Have.Containers, func(c pod.Container) bool {
		_, busy := in.Busy[KeyOf(Stop, Instance(c.ID))]
		return alive(c) && (busy || !in.Now.Before(in.RetryAt[KeyOf(Stop, Instance(c.ID))]))
	})
}

// alive are the containers that are to be stopped: those that stop first, in no
// order, and the sidecars in the order of the specification.
func (d *decision) alive() (first, sidecars []pod.Container) {
	in := &d.in
	for _, c := range in.Have.Containers {
		if alive(c) && (in.Pod == nil || !isSidecar(in, c)) {
			first = append(first, c)
		}
	}
	if in.Pod == nil {
		return first, nil
	}
	for i := range in.Pod.Spec.InitContainers {
		spec := &in.Pod.Spec.InitContainers[i]
		if !pod.IsSidecar(spec) {
			continue
		}
		for _, c := range in.Have.Instances(spec.Name) {
			if alive(c) {
				sidecars = append(sidecars, c)
			}
		}
	}
	return first, sidecars
}

// alive reports whether the container runs or may run.
func alive(c pod.Container) bool { return c.State == pod.StateRunning || c.State == pod.StateUnknown }

// deadline is the end of the pod's grace period; for a pod without specification
// it is the grace period in the annotations of the container.
func (d *decision) deadline(c pod.Container) time.Time {
	if d.in.Termination != nil {
		return d.in.Termination.Deadline
	}
	if t, busy := d.in.Busy[KeyOf(Stop, Instance(c.ID))]; busy {
		return t.Deadline
	}
	grace, ok := pod.GraceFromAnnotations(c.Annotations)
	if !ok {
		grace = pod.DefaultGrace
	}
	return d.in.Now.Add(grace)
}

func isSidecar(in *Input, c pod.Container) bool {
	kind, _, ok := pod.Find(in.Pod, c.Name)
	return ok && kind == pod.Sidecar
}
