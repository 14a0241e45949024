package podsync

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// sandboxStopped notes that a sandbox was stopped.
func (w *worker) sandboxStopped(id string, err error) {
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boxes[id] = true
}

// keepStopped removes the notes of sandboxes that no longer exist. Sandboxes of a pod whose stored phase is terminal
// count as stopped: the phase is written after they were stopped, maybe by an earlier agent.
func (w *worker) keepStopped(have pod.Runtime) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.boxes, func(id string, _ bool) bool {
		return !slices.ContainsFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
	})
	if w.spec == nil {
		return
	}
	if phase := w.told().Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
		return
	}
	for _, s := range have.Sandboxes {
		if !s.Ready {
			w.boxes[s.ID] = true
		}
	}
}

// anySandbox reports whether a sandbox is ready, or still holds its network.
func (w *worker) anySandbox(have pod.Runtime) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.Ready || !w.boxes[s.ID] })
}
