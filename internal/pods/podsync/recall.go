package podsync

import (
	"slices"

	"keelson/internal/pods/pod"
)

// recall notes that a container is stopped only to be started anew. An agent that
// dies in between leaves it to the container's restart policy.
func (w *worker) recall(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recalled == nil {
		w.recalled = map[string]bool{}
	}
	w.recalled[id] = true
}

// markRecalled puts that on the containers concerned, and forgets those that are
// gone.
func (w *worker) markRecalled(have pod.Runtime) pod.Runtime {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.recalled) == 0 {
		return have
	}
	there := map[string]bool{}
	have.Containers = slices.Clone(have.Containers)
	for i := range have.Containers {
		c := &have.Containers[i]
		if w.recalled[c.ID] {
			there[c.ID] = true
			c.Recalled = c.State == pod.StateExited
		}
	}
	w.recalled = there
	return have
}
