package fakecri

import "time"

// Moment is the start or the end of a container's command. Calls record what was requested;
// moments record what happened, also if the answer of the call was lost.
type Moment struct {
	At        time.Time
	Pod, UID  string // namespace/name
	Sandbox   string // its id
	Container string
	Attempt   uint32
	Ended     bool
	Code      int32 // of an end
}

func (r *Runtime) tellLocked(c *container, ended bool) {
	s := r.sandboxes[c.sandboxID]
	if r.opts.OnMoment == nil || s == nil {
		return
	}
	m := c.config.GetMetadata()
	r.opts.OnMoment(Moment{At: time.Now(), Pod: s.key(), UID: s.config.GetMetadata().GetUid(), Sandbox: s.id,
		Container: m.GetName(), Attempt: m.GetAttempt(), Ended: ended, Code: c.exitCode})
}
