package podplan

import (
	"time"

	"keelson/internal/pods/pod"
)

// decision is the state of one call of [Decide].
type decision struct {
	in   Input
	view View
	plan Plan
	// linking is set while logs are being linked: no container is removed meanwhile, together with its logs.
	linking bool
}

func (d *decision) stop(c pod.Container, deadline time.Time, cause Cause, why string) {
	if !d.free(c.ID, deadline) {
		return
	}
	if at, ok := d.in.RetryAt[KeyOf(Stop, Instance(c.ID))]; ok && d.in.Now.Before(at) {
		d.plan.wakeAt(at)
		return
	}
	d.plan.step(Step{
		Verb:       Stop,
		Target:     Instance(c.ID),
		Deadline:   deadline,
		Cause:      cause,
		ForRestart: stopsForRestart(cause, d.in.Pod, c.Name),
		Replace:    replaces(cause, d.in.Pod, c.Name),
		Reason:     why,
	})
}

// free reports whether a stop with this deadline can be requested: not while the container is being removed, or stopped
// with the same or an earlier deadline.
func (d *decision) free(id string, deadline time.Time) bool {
	t, busy := d.in.Busy[KeyOf(Stop, Instance(id))]
	return !busy || (t.Verb == Stop || t.Verb == AnnounceStop) && deadline.Before(t.Deadline)
}

// act adds a step unless its target is busy or waits after a failure, and
// reports whether it did.
func (d *decision) act(s Step) bool {
	if _, busy := d.in.Busy[s.Key()]; busy || d.linking && (s.Verb == Remove || s.Verb == RemoveDirectories) {
		return false
	}
	if at, ok := d.in.RetryAt[s.Key()]; ok && d.in.Now.Before(at) {
		d.plan.wakeAt(at)
		return false
	}
	d.plan.step(s)
	return true
}
