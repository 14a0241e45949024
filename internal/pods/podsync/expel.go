package podsync

import (
	"context"
	"slices"
	"sync"
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
// anything is stopped, unless the disk takes too long: an agent after this one finds a pod that could run and was not
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

// verdictPatience is how long a verdict that cannot be written down holds up the end
// of its pod: room is needed.
const verdictPatience = 500 * time.Millisecond

// expel ends a pod for the node's sake, or for another pod's. It does not block: the
// pod's own worker writes the verdict down first, see [worker.carryOut]. A pod that goes
// already has less time at most, and nothing is written.
func (w *worker) expel(e End) {
	now := w.s.cfg.Now()
	e.Deadline, e.Override.Phase = now.Add(e.Grace), v1.PodFailed
	w.mu.Lock()
	first := w.going == nil && w.verdict == nil
	if first {
		w.verdict, w.verdictAt = &e, now
	}
	w.mu.Unlock()
	if !first {
		w.putOut(now, e)
	}
	w.poke()
}

// carryOut writes the record of an eviction, and evicts the pod when the record is written or the write takes too long.
// It returns the time at which it has to be called again.
func (w *worker) carryOut(ctx context.Context, tasks *sync.WaitGroup, now time.Time) (next time.Time) {
	w.mu.Lock()
	e, until, noted := w.verdict, w.verdictAt.Add(verdictPatience), w.noted
	w.mu.Unlock()
	if e == nil {
		return time.Time{}
	}
	if !noted {
		note := *e
		w.once(ctx, tasks, noteVerdict, func(context.Context) error {
			// The pod may be about to get its directory.
			err := w.s.cfg.Dirs.Make(w.uid)
			if err == nil {
				err = w.s.cfg.Dirs.NoteEnd(w.uid, note)
			}
			if err != nil {
				w.log.Warn("cannot record the eviction of the pod; a restarted agent will not know of it", "err", err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.noted = true
			return nil
		})
		if now.Before(until) {
			return until
		}
		w.log.Warn("evicting the pod before its eviction is recorded: the disk is slow", "waited", verdictPatience)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdictLocked(now)
	return time.Time{}
}

// verdictLocked puts a verdict in force that was passed and not carried out yet. Whatever
// else ends the pod comes after it.
func (w *worker) verdictLocked(now time.Time) {
	if e := w.verdict; e != nil {
		w.verdict = nil
		w.putOutLocked(now, *e)
	}
}

// putOut makes the pod go.
func (w *worker) putOut(now time.Time, e End) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.putOutLocked(now, e)
}

func (w *worker) putOutLocked(now time.Time, e End) {
	grace := max(e.Deadline.Sub(now), 0) // it may be over while no agent ran
	w.atOnce = w.atOnce || e.AtOnce
	if w.endLocked(now, grace, &e.Override, e.Why) {
		w.outBy = now.Add(max(grace+grace/2, leastOutBy))
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

// expelled reports whether the API server has the terminal status of an evicted pod, so
// that its containers and sandboxes can be removed. An evicted pod whose containers all
// exited with 0 is shown as Succeeded, not as evicted.
func (w *worker) expelled() bool {
	p := w.spec
	if p == nil || !pod.IsTerminal(p) {
		return false
	}
	w.mu.Lock()
	evicted := w.override != nil && w.override.Reason == pod.ReasonEvicted
	w.mu.Unlock()
	return evicted || p.Status.Reason == pod.ReasonEvicted || slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
	})
}
