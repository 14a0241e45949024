package probe

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
)

// outcome is what one run of a probe came to.
type outcome int

const (
	failure outcome = iota
	success
	warning // success that is worth an event
	errored // the probe could not be run; it says nothing of the container
)

// settings are a probe's numbers with the API's defaults filled in, which
// static pods come without.
type settings struct {
	delay, period, timeout time.Duration
	failures, successes    int
}

func settingsOf(p *v1.Probe) settings {
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	return settings{
		delay:     seconds(p.InitialDelaySeconds),
		period:    seconds(cmp.Or(p.PeriodSeconds, 10)),
		timeout:   seconds(cmp.Or(p.TimeoutSeconds, 1)),
		failures:  int(cmp.Or(p.FailureThreshold, 3)),
		successes: int(cmp.Or(p.SuccessThreshold, 1)),
	}
}

// counter turns outcomes into a result: a run of equal outcomes of the probe's
// threshold moves it. An errored run neither counts nor breaks the run.
type counter struct {
	last outcome
	run  int
}

// observe counts o and reports whether the result is now known to be ok or not.
func (c *counter) observe(o outcome, s settings) (ok, decided bool) {
	if o == errored {
		return false, false
	}
	if o == warning {
		o = success
	}
	if c.run > 0 && o == c.last {
		c.run++
	} else {
		c.last, c.run = o, 1
	}
	if o == success {
		return true, c.run >= s.successes
	}
	return false, c.run >= s.failures
}
