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

// MadeOf returns the image and the resources of a container. A back-off applies to these only: with another image or
// other resources the container has not crashed yet.
func MadeOf(spec *v1.Container) string {
	resources, err := json.Marshal(spec.Resources)
	if err != nil { // quantities and strings always can be
		panic(err)
	}
	return spec.Image + " " + string(resources)
}

// For returns the back-off for the current specification of the container.
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

// Limits returns the limits for a node's configured maximum delay. If short is set, by its gate, the delay begins with
// one second and doubles up to one minute; a maximum that differs from the default replaces the minute.
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

// Until is the time before which a container that finished then may not be started again; zero if it may be started at
// once. There is no delay if the container finished more than ten minutes after its last restart.
func (b Backoff) Until(finished time.Time) time.Time {
	if b.Delay == 0 || b.expired(finished) {
		return time.Time{}
	}
	return finished.Add(b.Delay)
}

// Next returns the back-off after a restart at now.
func (b Backoff) Next(now time.Time, l BackoffLimits) Backoff {
	if b.Delay == 0 || b.expired(now) {
		return Backoff{Delay: l.First, Since: now, Of: b.Of}
	}
	return Backoff{Delay: min(2*b.Delay, l.Max), Since: now, Of: b.Of}
}

// expiry is the time since the last restart after which the back-off starts over, however short the maximum delay is.
const expiry = 10 * time.Minute

func (b Backoff) expired(at time.Time) bool { return at.Sub(b.Since) > expiry }
