package pod

import "slices"

// Effect is the expected result of an action on one sandbox or container.
type Effect struct {
	Sandbox   string // its id; for a container that of its sandbox
	Container string // its id; empty for an effect on the sandbox itself
	// State is the minimum state of the container. For a sandbox, running means ready and
	// exited not ready.
	State State
	Gone  bool // removed, with everything in it
}

// ShownBy reports whether r shows the effect or a later state.
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
