package podplan

import (
	"slices"
	"time"

	"keelson/internal/pods/pod"
)

// wind brings a pod to its end: regular containers stop together, then the
// sidecars in reverse, all within one grace period; then the sandboxes; and if
// no source knows the pod any more, everything is removed.
func (d *decision) wind() {
	in := &d.in
	if !in.Forgotten {
		d.prune()
	}
	if d.stopContainers() {
		d.plan.waitFor("containers to stop")
		if d.unstoppable() {
			d.stopReadySandboxes("grace period is over, and its containers cannot be stopped")
		}
		return
	}
	stopping := d.stopReadySandboxes("pod is going")
	// Sandboxes of a forgotten pod are stopped by RemovePodSandbox.
	if !in.Forgotten && !d.stopDeadSandboxes("pod is going") {
		stopping = true
	}
	// A sandbox that is being made will be there when its maker is done.
	if _, making := in.Busy[SandboxTarget]; making || stopping {
		d.plan.waitFor("sandbox to stop")
		return
	}
	d.plan.Stopped = true
	if in.Forgotten {
		d.remove()
	}
}

// stopContainers asks every container whose turn it is to stop. Those whose turn
// comes later are told at once: what they do before they stop is done side by
// side. It reports whether any is left.
func (d *decision) stopContainers() bool {
	in := &d.in
	first, sidecars := d.alive()
	turn, later := first, sidecars
	switch last := len(sidecars) - 1; {
	case in.Going != nil && !in.Now.Before(in.Going.Deadline):
		turn, later = append(turn, sidecars...), nil // no time left for an order
	case len(first) == 0 && len(sidecars) > 0:
		turn, later = sidecars[last:], sidecars[:last]
	}
	for _, c := range turn {
		d.stop(c, d.deadline(c), CausePodGoing, "pod is going")
	}
	for _, c := range later {
		if deadline := d.deadline(c); !in.Announced[c.ID] && d.free(c.ID, deadline) {
			d.plan.step(Step{Verb: AnnounceStop, Target: c.ID, Deadline: deadline, Reason: "pod is going"})
		}
	}
	if in.Going != nil && len(sidecars) > 0 && in.Now.Before(in.Going.Deadline) {
		d.plan.wakeAt(in.Going.Deadline)
	}
	// A container that is being started will be seen when its maker is done.
	return d.starting || len(first)+len(sidecars) > 0
}

// stopReadySandboxes reports whether there is any.
func (d *decision) stopReadySandboxes(why string) bool {
	ready := false
	for _, s := range d.in.Have.Sandboxes {
		if s.Ready {
			ready = true
			d.act(Step{Verb: StopSandbox, Target: s.ID, Reason: why})
		}
	}
	return ready
}

// unstoppable reports whether the grace period is over and StopContainer has failed for every remaining container. Such
// containers are killed by StopPodSandbox, for which the runtime sends no SIGTERM.
func (d *decision) unstoppable() bool {
	in := &d.in
	if in.Going == nil || in.Now.Before(in.Going.Deadline) || d.starting {
		return false
	}
	return !slices.ContainsFunc(in.Have.Containers, func(c pod.Container) bool {
		_, busy := in.Busy[c.ID]
		return alive(c) && (busy || !in.Now.Before(in.RetryAt[c.ID]))
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

// alive reports whether the container may be doing something.
func alive(c pod.Container) bool { return c.State == pod.StateRunning || c.State == pod.StateUnknown }

// deadline is the end of the pod's grace period; for a pod without specification
// it is the grace period written on the container.
func (d *decision) deadline(c pod.Container) time.Time {
	if d.in.Going != nil {
		return d.in.Going.Deadline
	}
	if t, busy := d.in.Busy[c.ID]; busy {
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

// remove takes everything out of the runtime: containers first, their sandboxes
// when they are empty.
func (d *decision) remove() {
	for _, c := range d.in.Have.Containers {
		d.act(Step{Verb: Remove, Target: c.ID, Reason: "pod is gone"})
	}
	if len(d.in.Have.Containers) > 0 {
		d.plan.waitFor("containers to be removed")
		return
	}
	for _, s := range d.in.Have.Sandboxes {
		d.act(Step{Verb: RemoveSandbox, Target: s.ID, Reason: "pod is gone"})
	}
	if len(d.in.Have.Sandboxes) > 0 {
		d.plan.waitFor("sandbox to be removed")
	}
}
