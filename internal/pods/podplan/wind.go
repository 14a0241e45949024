package podplan

import (
	"time"

	"keelson/internal/pods/pod"
)

// wind brings a pod to its end: regular containers stop together, then the
// sidecars in reverse, all within one grace period; then the sandboxes; and if
// no source knows the pod any more, everything is removed.
func (d *decision) wind() {
	in := &d.in
	if d.stopContainers() {
		d.plan.waitFor("containers to stop")
		return
	}
	stopping := false
	for _, s := range in.Have.Sandboxes {
		if s.Ready {
			stopping = true
			d.act(Step{Verb: StopSandbox, Target: s.ID, Reason: "pod is going"})
		}
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

// stopContainers asks every container whose turn it is to stop. It reports
// whether any is left.
func (d *decision) stopContainers() bool {
	in := &d.in
	var first, sidecars []pod.Container // sidecars in the order of the specification
	for _, c := range in.Have.Containers {
		if c.State != pod.StateRunning && c.State != pod.StateUnknown {
			continue
		}
		if in.Pod == nil || !isSidecar(in, c) {
			first = append(first, c)
		}
	}
	if in.Pod != nil {
		for i := range in.Pod.Spec.InitContainers {
			spec := &in.Pod.Spec.InitContainers[i]
			if !pod.IsSidecar(spec) {
				continue
			}
			for _, c := range in.Have.Instances(spec.Name) {
				if c.State == pod.StateRunning || c.State == pod.StateUnknown {
					sidecars = append(sidecars, c)
				}
			}
		}
	}
	turn := first
	switch {
	case in.Going != nil && !in.Now.Before(in.Going.Deadline):
		turn = append(turn, sidecars...) // no time left for an order
	case len(first) == 0 && len(sidecars) > 0:
		turn = sidecars[len(sidecars)-1:]
	}
	for _, c := range turn {
		d.stop(c, d.deadline(c), CausePodGoing, "pod is going")
	}
	if in.Going != nil && len(sidecars) > 0 && in.Now.Before(in.Going.Deadline) {
		d.plan.wakeAt(in.Going.Deadline)
	}
	// A container that is being started will be seen when its maker is done.
	return d.starting || len(first)+len(sidecars) > 0
}

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
