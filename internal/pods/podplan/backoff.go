package podplan

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Backoff is the restart back-off (CrashLoopBackOff) of one container: how long it
// waits after its next exit. The zero value is a container that has not been restarted yet.
type Backoff struct {
	Delay time.Duration
	Since time.Time // when Delay was set
	Of    string    // what was restarted then, see [MadeOf]
}

// MadeOf tells a container from one with another image or other resources, which has not
// crashed yet.
func MadeOf(spec *v1.Container) string {
	resources, err := json.Marshal(spec.Resources)
	if err != nil { // quantities and strings always can be
		panic(err)
	}
	return spec.Image + " " + string(resources)
}

// For is the back-off of the container as it is to be now.
func (b Backoff) For(spec *v1.Container) Backoff {
	if b.Of != MadeOf(spec) {
		return Backoff{Of: MadeOf(spec)}
	}
	return b
}

// BackoffLimits are the node's settings of the crash back-off.
type BackoffLimits struct {
	First time.Duration
	Max   time.Duration
}

// DefaultBackoff doubles from ten seconds up to five minutes.
var DefaultBackoff = BackoffLimits{First: 10 * time.Second, Max: 5 * time.Minute}

// Limits are the limits of a node that sets a longest delay, and the gate that
// makes them short: one second that doubles up to a minute. A longest delay that
// was set away from the default counts all the same.
func Limits(longest time.Duration, short bool) BackoffLimits {
	l := DefaultBackoff
	if short {
		l = BackoffLimits{First: time.Second, Max: time.Minute}
	}
	if longest != DefaultBackoff.Max {
		l.Max = longest
	}
	l.First = min(l.First, l.Max)
	return l
}

// Until is the time before which a container that finished then may not be
// started again; zero when it may be at once. A container that has behaved for
// ten minutes starts over.
func (b Backoff) Until(finished time.Time) time.Time {
	if b.Delay == 0 || b.expired(finished) {
		return time.Time{}
	}
	return finished.Add(b.Delay)
}

// Next is the back-off after a restart at now.
func (b Backoff) Next(now time.Time, l BackoffLimits) Backoff {
	if b.Delay == 0 || b.expired(now) {
		return Backoff{Delay: l.First, Since: now, Of: b.Of}
	}
	return Backoff{Delay: min(2*b.Delay, l.Max), Since: now, Of: b.Of}
}

// expiry is how long a container must have behaved to start over, however short the
// longest delay is.
const expiry = 10 * time.Minute

func (b Backoff) expired(at time.Time) bool { return at.Sub(b.Since) > expiry }
