package pod

import (
	"strings"
	"time"
)

// Late is why a pod waits for device plugins. The zero value waits for nothing.
type Late struct {
	Resources  []string  // whose device plugins have yet to register
	Containers []string  // that ask for them
	Until      time.Time // when the wait ends; zero: when they have registered
}

// Waits reports whether there is anything to wait for.
func (l Late) Waits() bool { return len(l.Resources) > 0 }

// String names what the pod waits for.
func (l Late) String() string {
	if len(l.Resources) == 1 {
		return "the device plugin of " + l.Resources[0] + " to register"
	}
	return "the device plugins of " + strings.Join(l.Resources, ", ") + " to register"
}
