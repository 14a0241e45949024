package pod

import (
	"strings"
	"time"
)

// Late describes the wait of a pod for device plugins to register. The zero value is no
// wait.
type Late struct {
	Resources  []string  // whose device plugins have not registered yet
	Containers []string  // that request them
	Until      time.Time // when the wait ends; zero: when they have registered
}

// Waits reports whether the pod has to wait.
func (l Late) Waits() bool { return len(l.Resources) > 0 }

// String describes what the pod waits for.
func (l Late) String() string {
	if len(l.Resources) == 1 {
		return "the device plugin of " + l.Resources[0] + " to register"
	}
	return "the device plugins of " + strings.Join(l.Resources, ", ") + " to register"
}
