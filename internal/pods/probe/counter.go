package probe

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
)

// outcome is the result of one run of a probe.
type outcome int

const (
	failure outcome = iota
	success
	warning // success that is worth an event
	errored // the probe could not be run; the container's health is unknown
)

// settings are a probe's periods and thresholds with the API's defaults.
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

// counter turns outcomes into a result: as many equal outcomes in a row as the probe's
// threshold change it. An errored run neither counts nor interrupts the row.
type counter struct {
	last outcome
	run  int
}

// observe counts o. decided reports whether a threshold is reached, ok which one.
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
