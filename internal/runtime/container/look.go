package container

import "time"

const (
	// lookPeriod is how long the processors are watched at a time. The kernel counts
	// in hundredths of a second.
	lookPeriod = 20 * time.Millisecond
	// lookFor is how long they are watched in all: by then calls have come back, or
	// take so long that it does not matter.
	lookFor = 200 * time.Millisecond
)

// Processors tells how long the machine's processors together have had nothing to
// do, and how long they have been there.
type Processors func() (idle, all time.Duration, err error)

// look is a time in which the processors are watched.
type look struct {
	until     time.Time
	idle, all time.Duration // at its last step
}

// lookLocked lets calls go that wait while the processors have nothing to do. It
// begins when the first calls of all have to wait: nothing is known of the runtime
// then. Calls that came back tell more, and end it.
func (t *turns) lookLocked() {
	if t.processors == nil || t.look != nil || t.pace.taught {
		return
	}
	t.look = &look{until: time.Now().Add(lookFor)}
	time.AfterFunc(0, t.lookOn)
}

// lookOn is a step of the look.
func (t *turns) lookOn() {
	idle, all, err := t.processors()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.look
	if err != nil || t.pace.taught || time.Now().After(l.until) {
		return
	}
	if l.all > 0 && all > l.all {
		t.pace.see(t.here, float64(idle-l.idle)/float64(all-l.all))
		t.placeLocked()
	}
	l.idle, l.all = idle, all
	time.AfterFunc(lookPeriod, t.lookOn)
}
