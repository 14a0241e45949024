package podsync

import (
	"maps"
	"slices"

	"keelson/internal/pods/pod"
)

// recall notes that a container is stopped only to be started anew, before it is
// stopped: how it ends would not tell.
func (w *worker) recall(id string) {
	w.noting.Lock()
	defer w.noting.Unlock()
	w.mu.Lock()
	if w.recalled == nil {
		w.recalled = map[string]bool{}
	}
	w.recalled[id] = true
	w.mu.Unlock()
	w.writeRestarts()
}

// beginAnew notes which containers a restart of all removes, before any of them is
// removed.
func (w *worker) beginAnew(anew map[string]int) {
	w.noting.Lock()
	defer w.noting.Unlock()
	if maps.Equal(w.anew, anew) {
		return // by the task that removes another of them
	}
	w.anew = anew
	w.writeRestarts()
}

// forgetAnew has nothing more in writing of a restart of all once its pod's stored
// status tells of it.
func (w *worker) forgetAnew() {
	w.noting.Lock()
	defer w.noting.Unlock()
	if len(w.anew) > 0 && len(w.renewed) == 0 {
		w.anew = nil
		w.writeRestarts()
	}
}

// writeRestarts writes down what is noted, for an agent after this one. If that
// cannot be, such an agent goes by what it sees, and by restart policies. noting
// is held.
func (w *worker) writeRestarts() {
	w.mu.Lock()
	r := Restarts{Recalled: slices.Sorted(maps.Keys(w.recalled)), Anew: w.anew}
	w.mu.Unlock()
	if err := w.s.cfg.Dirs.NoteRestarts(w.uid, r); err != nil {
		w.log.Warn("cannot write down which containers are being restarted", "err", err)
	}
}

// takeUpRestarts reads what an agent before this one has noted, once.
func (w *worker) takeUpRestarts(have pod.Runtime) {
	if w.restartsRead {
		return
	}
	w.restartsRead = true
	if have.Empty() {
		return
	}
	r, err := w.s.cfg.Dirs.Restarts(w.uid)
	if err != nil {
		w.log.Warn("cannot tell which containers were being restarted", "err", err)
		return
	}
	w.noting.Lock()
	w.anew = r.Anew
	w.noting.Unlock()
	maps.Copy(w.renewed, r.Anew)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range r.Recalled {
		if w.recalled == nil {
			w.recalled = map[string]bool{}
		}
		w.recalled[id] = true
	}
}

// markRecalled puts on containers that they were stopped to be started anew, and
// forgets those that are gone.
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
