package fakecri

import (
	"time"
)

// process is a container's main command at work. It is driven by timers and
// held under Runtime.mu.
type process struct {
	program
	vm    *machine
	timer *time.Timer
}

// stop makes a timer that fires late find nothing to do: the container's proc
// is another one by then.
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
