package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Upstream stops a container that a probe has failed, or that has to be another one, and starts it again in one pass,
// with the pod's status from before the stop: the instance that it stops still runs in it. The crash back-off of that
// restart counts from the end of the instance before, and without one there is none. What is noted here makes it so.

// replaces reports whether what is stopped for that cause is started again in the same pass.
func replaces(cause podplan.Cause, p *v1.Pod, name string) bool {
	if p == nil {
		return false
	}
	kind, spec, known := pod.Find(p, name)
	if !known {
		return false
	}
	switch cause {
	case podplan.CauseSpecChanged, podplan.CauseResize, podplan.CauseUnknownState:
		return true
	case podplan.CauseLiveness, podplan.CauseStartup:
		return kind != pod.Regular || restartsAfterProbe(p, spec)
	case podplan.CauseSandboxChanged:
		// That pass runs the new sandbox and what comes first in it.
		if inits := p.Spec.InitContainers; len(inits) > 0 {
			return name == inits[0].Name
		}
		return kind == pod.Regular
	}
	return false
}

// endedBefore is when the newest ended instance of the container ended.
func endedBefore(have pod.Runtime, name string) time.Time {
	for _, c := range have.Instances(name) {
		if c.State == pod.StateExited {
			return c.FinishedAt
		}
	}
	return time.Time{}
}

// replace notes a container that is about to be stopped to be started again, and when the instance before it ended.
func (w *worker) replace(id string, before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replaced[id] = before
}

// endsByItself notes that a container could not be stopped: if it ends, it does so by itself.
func (w *worker) endsByItself(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.replaced, id)
}

// countRestart counts a start against the container's back-off if it is a restart. What could not be started then
// waits like any other.
func (w *worker) countRestart(p *v1.Pod, spec *v1.Container, last pod.Container, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := again && !last.Recalled
	if before, ok := w.replaced[last.ID]; ok {
		counts = !before.IsZero()
		delete(w.replaced, last.ID)
	}
	if _, renewed := podplan.Renewed(p, spec.Name); counts || renewed {
		w.backoff[spec.Name] = w.backoff[spec.Name].For(spec).Next(w.s.cfg.Now(), w.s.cfg.Backoff)
	}
}
