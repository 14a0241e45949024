package podsync

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
)

// Eviction is how a pod ends for the node's sake.
type Eviction struct {
	Grace time.Duration
	// AtOnce kills its containers without asking them to stop first.
	AtOnce  bool
	Message string
	// Disrupts says that the pod ends by no fault of its own.
	Disrupts bool
}

// End is the verdict on a pod that has to make room. It is written down before
// anything is stopped: an agent after this one finds a pod that could run and was not
// to, and the lack for which it had to go may be over.
type End struct {
	Grace    time.Duration   `json:"-"`
	AtOnce   bool            `json:"atOnce,omitempty"`
	Deadline time.Time       `json:"deadline"`
	Why      string          `json:"why"`
	Override status.Override `json:"override"`
}

// leastOutBy is the least that an expelled pod has to be gone.
const leastOutBy = 10 * time.Second

// expel ends a pod for the node's sake, or for another pod's. It is told of if the
// runtime takes too long over it.
func (w *worker) expel(e End) {
	now := w.s.cfg.Now()
	e.Deadline, e.Override.Phase = now.Add(e.Grace), v1.PodFailed
	w.mu.Lock()
	first := w.going == nil
	w.mu.Unlock()
	if first {
		// The pod may be about to get its directory.
		err := w.s.cfg.Dirs.Make(w.uid)
		if err == nil {
			err = w.s.cfg.Dirs.NoteEnd(w.uid, e)
		}
		if err != nil {
			w.log.Warn("cannot write down that the pod has to go; an agent after this one will not know", "err", err)
		}
	}
	w.putOut(now, e)
	w.poke()
}

// putOut makes the pod go.
func (w *worker) putOut(now time.Time, e End) {
	grace := max(e.Deadline.Sub(now), 0) // it may be over while no agent ran
	if e.AtOnce {
		w.mu.Lock()
		w.atOnce = true
		w.mu.Unlock()
	}
	if w.end(now, grace, &e.Override, e.Why) {
		w.mu.Lock()
		w.outBy = now.Add(max(grace+grace/2, leastOutBy))
		w.mu.Unlock()
	}
}

// takeUpEnd reads, once, whether an agent before this one has put the pod out.
func (w *worker) takeUpEnd(now time.Time) {
	if w.endRead {
		return
	}
	w.endRead = true
	e, ended, err := w.s.cfg.Dirs.End(w.uid)
	switch {
	case err != nil:
		w.log.Warn("cannot tell whether the pod was put out before", "err", err)
	case ended:
		w.ended = true
		w.putOut(now, e)
	}
}

// lingers tells, once, that an expelled pod lives on though its time is long over.
// It returns when that has to be asked again.
func (w *worker) lingers(now time.Time, stopped bool) (next time.Time) {
	w.mu.Lock()
	by := w.outBy
	over := !by.IsZero() && !now.Before(by)
	if stopped || over {
		w.outBy, by = time.Time{}, time.Time{}
	}
	w.mu.Unlock()
	if over && !stopped {
		w.s.cfg.Events.Pod(w.spec, "", v1.EventTypeWarning, pod.EventExceededGracePeriod, "Container runtime did not kill the pod within specified grace period.")
	}
	return by
}

// expelled reports whether the API server knows that the pod was put out of the
// node and has ended: nobody needs what is left of it in the runtime.
func expelled(p *v1.Pod) bool {
	if p == nil || !pod.IsTerminal(p) {
		return false
	}
	return p.Status.Reason == pod.ReasonEvicted || slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
	})
}
