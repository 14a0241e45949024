package fakecri

import (
	"time"
)

// process is a container's running main command. Timers drive it; Runtime.mu guards it.
type process struct {
	program
	vm    *machine
	timer *time.Timer
}

// stop stops the timer. A timer that has fired already does nothing, because the
// caller replaces the container's proc.
func (p *process) stop() {
	if p != nil && p.timer != nil {
		p.timer.Stop()
	}
}

// advanceLocked runs the command until it waits or ends.
func (r *Runtime) advanceLocked(c *container, p *process) {
	if p.vm == nil {
		p.vm = &machine{program: p.program, main: true, fs: c, out: c.print}
	}
	v := p.vm.run()
	switch {
	case v.done:
		reason := ""
		if v.oom {
			reason = "OOMKilled"
		}
		r.exitLocked(c, v.code, reason, "")
	case v.wait > 0:
		p.timer = time.AfterFunc(v.wait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if c.proc == p {
				r.advanceLocked(c, p)
			}
		})
	}
}

// terminateLocked delivers the stop signal.
func (r *Runtime) terminateLocked(c *container) {
	switch t := c.proc.vm.trap; {
	case t.ignore:
	case t.set:
		r.exitLocked(c, t.code, "", "")
	default:
		r.exitLocked(c, 143, "", "")
	}
}
