package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Upstream stops a container for a failed probe or a changed specification and starts it again in one sync, with the
// pod status from before the stop, in which the stopped instance still runs. So the crash back-off of that restart
// counts from the end of the instance before it, and there is none without such an instance. The notes kept here give
// the same back-off.

// replaces reports whether a container that is stopped for that cause is started again in the same sync of upstream's.
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
		// That sync creates the new sandbox and starts the first init container, or else the regular ones.
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

// replace notes a container that is about to be stopped for a restart, and when the instance before it ended.
func (w *worker) replace(id string, before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replaced[id] = before
}

// endsByItself removes the note of a container that could not be stopped: a later exit counts as its own.
func (w *worker) endsByItself(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.replaced, id)
}

// countRestart increases the container's back-off if the start is a restart. This also holds for a start that fails.
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
