package podplan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// images requests the images of all containers that have not run yet, so that they are ready when the containers can
// start.
func (d *syncing) images() {
	for kind, spec := range pod.Containers(d.in.Pod) {
		if _, ok := d.view.Instance(spec.Name); !ok && kind != pod.Ephemeral {
			d.image(spec.Name, d.attempt(spec.Name))
		}
	}
}

// image reports whether the image for that attempt is ready, and requests it if not.
func (d *syncing) image(name string, attempt int) bool {
	img, known := d.in.Images[name]
	if known && img.Attempt == attempt && img.Ready {
		return true
	}
	if known && img.Attempt == attempt && d.in.Now.Before(img.RetryAt) {
		d.plan.wakeAt(img.RetryAt)
		return false
	}
	d.act(Step{Verb: FetchImage, Target: Container(name), Attempt: attempt, Reason: "needed by container"})
	return false
}

// restart starts an ended container again once its back-off is over.
func (d *syncing) restart(kind pod.Kind, spec *v1.Container, c pod.Container) {
	in := &d.in
	if _, busy := in.Busy[KeyOf(Start, Container(spec.Name))]; busy {
		return // the back-off is that of the instance that is being started
	}
	if d.held(c) {
		return
	}
	if until := c.FinishedAt.Add(sandboxSettles); d.wasKilled(c) && inNewestSandbox(in.Have, c) &&
		in.Now.Before(until) && !in.Now.Before(c.FinishedAt) {
		d.plan.wakeAt(until)
		d.plan.waitFor(Wait{Kind: WaitSettled, Target: Container(spec.Name)})
		return
	}
	d.start(kind, spec, "exited", c, true)
}

// held reports whether an ended container has to wait for its crash back-off.
func (d *syncing) held(c pod.Container) bool {
	b := d.in.Backoff[c.Name]
	if _, spec, ok := pod.Find(d.in.Pod, c.Name); ok && b.Of != "" {
		b = b.For(spec)
	}
	until := b.Until(c.FinishedAt)
	if before, ok := d.in.Replaced[c.ID]; ok && !c.FinishedAt.Before(b.Until(before)) {
		return false // as upstream, where the sync that stops a container computes the back-off from the one before it
	}
	if !d.in.Now.Before(until) || aheadOfClock(c, d.in.Now) {
		return false
	}
	if d.plan.Held == nil {
		d.plan.Held = map[string]time.Time{}
	}
	d.plan.Held[c.Name] = until
	d.plan.wakeAt(until)
	d.plan.waitFor(Wait{Kind: WaitBackoff, Target: Container(c.Name)})
	return true
}

// sandboxSettles is how long a runtime takes to end a sandbox after it has killed the containers in it. A container
// that was killed, and not by the kernel for its memory, is not started again before it is clear that its sandbox
// stays: it would only be killed once more.
const sandboxSettles = time.Second

// aheadOfClock reports whether the container ended at a time in the future: the clock was set back since then, and a
// delay from that time would be too long by as much. A time that is only a moment ahead is that of a container that
// ended during this decision.
func aheadOfClock(c pod.Container, now time.Time) bool { return c.FinishedAt.Sub(now) > time.Minute }

// wasKilled reports whether the container was killed, but neither by the agent nor by the OOM killer.
func (d *syncing) wasKilled(c pod.Container) bool {
	_, replaced := d.in.Replaced[c.ID]
	return c.ID != "" && !d.view.stoppedForRestart(c) && !replaced && c.ExitCode == 137 && c.Reason != "OOMKilled"
}

// start requests the container's image and, once that is ready, the start of the container.
func (d *syncing) start(kind pod.Kind, spec *v1.Container, why string, last pod.Container, ran bool) {
	if _, busy := d.in.Busy[KeyOf(Start, Container(spec.Name))]; busy {
		return // its start is not complete yet
	}
	d.plan.ToStart = append(d.plan.ToStart, spec.Name)
	if ran && last.State == pod.StateCreated {
		// It was created and never started, perhaps because an agent died in between. It is removed, because it is created
		// again as the same attempt, and the containers after it wait as for any start.
		d.act(Step{Verb: Remove, Target: Instance(last.ID), Reason: why})
		d.starting = true
		return
	}
	if d.resizing() && kind == pod.Regular {
		d.plan.waitFor(Wait{Kind: WaitResize})
		return
	}
	attempt := d.attempt(spec.Name)
	if d.image(spec.Name, attempt) {
		if !d.starting {
			d.starting = d.act(Step{Verb: Start, Target: Container(spec.Name), Attempt: attempt, Reason: why})
		}
		return
	}
	// The order of the specification holds for the first start in a sandbox: the next
	// containers wait for an image that is being pulled, but not for a pull that has
	// failed, nor for a container that could not be started, before it is tried again.
	first := !ran || !inNewestSandbox(d.in.Have, last)
	due := !d.in.Now.Before(d.in.RetryAt[KeyOf(Start, Container(spec.Name))])
	if kind == pod.Regular && first && due && d.in.Images[spec.Name].RetryAt.IsZero() {
		d.starting = true
	}
}

// attempt is the number of the next instance of a container: one more than the last one that the runtime holds, that
// this agent has seen run, that the stored status shows, or that the log files show.
func (d *syncing) attempt(name string) int {
	next := d.in.LogAttempts[name]
	if n, ok := d.in.Ran[name]; ok {
		next = max(next, n+1)
	}
	if n, ok := d.view.RecreatedAs(name); ok {
		next = max(next, n)
	}
	if c, ok := d.view.Instance(name); ok {
		if c.State == pod.StateCreated {
			return c.Attempt
		}
		next = max(next, c.Attempt+1)
	}
	return next
}
