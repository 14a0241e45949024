package container

import "time"

const (
	// idleProbePeriod is the time between two readings of CPU idle time. The kernel counts in ticks
	// of 10 ms.
	idleProbePeriod = 20 * time.Millisecond
	// idleProbeLength is how long CPU idle time is read in all. After that, completed calls are a
	// better measure.
	idleProbeLength = 200 * time.Millisecond
)

// Processors returns the idle time of all CPUs of the machine together, and their total time, both
// since boot.
type Processors func() (idle, all time.Duration, err error)

// idleProbe is a series of readings of CPU idle time.
type idleProbe struct {
	until     time.Time
	idle, all time.Duration // at the last reading
}

// probeIdleLocked starts to raise the limit while CPUs are idle. It does so when calls have to wait
// before any measured call has completed. Measurements end it.
func (q *callQueue) probeIdleLocked() {
	if q.processors == nil || q.probe != nil || q.pace.measured {
		return
	}
	q.probe = &idleProbe{until: time.Now().Add(idleProbeLength)}
	time.AfterFunc(0, q.probeIdle)
}

// probeIdle takes one reading.
func (q *callQueue) probeIdle() {
	idle, all, err := q.processors()
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.probe
	if err != nil || q.pace.measured || time.Now().After(l.until) {
		return
	}
	if l.all > 0 && all > l.all {
		q.pace.see(q.active, float64(idle-l.idle)/float64(all-l.all))
		q.grantLocked()
	}
	l.idle, l.all = idle, all
	time.AfterFunc(idleProbePeriod, q.probeIdle)
}
