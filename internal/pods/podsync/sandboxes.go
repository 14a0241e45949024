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

// keepStopped forgets sandboxes that are gone. Those of a pod that the API server knows as ended were stopped before
// that was written, maybe by an agent before this one.
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

// anySandbox reports whether a sandbox is ready, or holds its network still.
func (w *worker) anySandbox(have pod.Runtime) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.Ready || !w.boxes[s.ID] })
}
