package podsync

import (
	"maps"
	"slices"

	"keelson/internal/pods/pod"
)

// recall notes that a container is stopped only to be started anew, before it is
// stopped: how it ends would not tell. It is written down, for an agent after this
// one; if that cannot be, such an agent goes by the container's restart policy.
func (w *worker) recall(id string) {
	w.mu.Lock()
	if w.recalled == nil {
		w.recalled = map[string]bool{}
	}
	w.recalled[id] = true
	ids := slices.Sorted(maps.Keys(w.recalled))
	w.mu.Unlock()
	if err := w.s.cfg.Dirs.NoteRecalled(w.uid, ids); err != nil {
		w.log.Warn("cannot write down that a container is to be started anew", "container_id", id, "err", err)
	}
}

// takeUpRecalled reads what an agent before this one has noted, once.
func (w *worker) takeUpRecalled(have pod.Runtime) {
	if w.recallsRead {
		return
	}
	w.recallsRead = true
	if len(have.Containers) == 0 {
		return
	}
	ids, err := w.s.cfg.Dirs.Recalled(w.uid)
	if err != nil {
		w.log.Warn("cannot tell which containers were to be started anew", "err", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if w.recalled == nil {
			w.recalled = map[string]bool{}
		}
		w.recalled[id] = true
	}
}

// markRecalled puts that on the containers concerned, and forgets those that are
// gone.
func (w *worker) markRecalled(have pod.Runtime) pod.Runtime {
	w.takeUpRecalled(have)
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
