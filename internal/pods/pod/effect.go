package pod

import "slices"

// Effect is what an action did to one sandbox or container, as the runtime will
// show it.
type Effect struct {
	Sandbox   string // its id; of a container: that of the sandbox it is in
	Container string // its id; empty when the sandbox itself is meant
	// State is what a container reached at least. A sandbox that runs is ready, one
	// that has exited is not.
	State State
	Gone  bool // removed, with everything in it
}

// ShownBy reports whether the effect, or what came after it, is in r.
func (e Effect) ShownBy(r Runtime) bool {
	if e.Container != "" {
		c, ok := r.ByID(e.Container)
		return ok != e.Gone && (e.Gone || c.State >= e.State)
	}
	i := slices.IndexFunc(r.Sandboxes, func(s Sandbox) bool { return s.ID == e.Sandbox })
	switch {
	case e.Gone || i < 0:
		return e.Gone && i < 0
	case e.State == StateExited:
		return !r.Sandboxes[i].Ready
	}
	s := r.Sandboxes[i]
	return !s.Ready || s.HostNetwork || len(s.IPs) > 0
}
