package podsync

import (
	"errors"
	"slices"

	"keelson/internal/pods/pod"
)

// errUprooted is found where containers run and their pod has no cgroup. The kernel
// removes none in which something runs: they were started below another, by an agent
// with another root or driver.
var errUprooted = errors.New("the pod's cgroup is gone, and its containers run")

// uproot has the sandbox given up: no limit holds for what runs in it.
func (w *worker) uproot(sandbox string) {
	w.log.Warn("containers run outside of the pod's cgroup, which is gone: they are started anew", "sandbox", sandbox)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uprooted = sandbox
}

// markUprooted puts on a sandbox that it was given up.
func (w *worker) markUprooted(have pod.Runtime) pod.Runtime {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uprooted == "" {
		return have
	}
	have.Sandboxes = slices.Clone(have.Sandboxes)
	for i := range have.Sandboxes {
		s := &have.Sandboxes[i]
		s.Uprooted = s.ID == w.uprooted
	}
	return have
}
