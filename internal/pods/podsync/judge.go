package podsync

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
)

// judge finds out whether the pod is to end, and when that has to be asked again;
// or that it waits for others to end.
func (w *worker) judge(ctx context.Context, tasks *sync.WaitGroup, now time.Time, have pod.Runtime) (next time.Time, waits bool) {
	if w.spec == nil {
		return time.Time{}, false
	}
	w.takeUpEnd(now)
	if next, stays := w.judgeWish(now); !stays {
		return next, false
	}
	if w.ended && have.Empty() {
		return time.Time{}, false // put out before anything of it ran: it takes no room
	}
	if waits := w.admitOnce(ctx, tasks, now, have); waits {
		return time.Time{}, true
	}
	return w.judgeLife(now, have), false
}

// judgeWish ends a pod that nobody wants any more. It reports whether the pod is
// wanted.
func (w *worker) judgeWish(now time.Time) (next time.Time, stays bool) {
	p := w.spec
	switch {
	case !w.known && (p.DeletionTimestamp != nil || w.forced.Load()):
		// Its object was removed before the pod had ended: a forced deletion. The worker may
		// not have seen the update that set the grace period to 0 just before.
		w.end(now, time.Second, nil, "forced to go")
		return time.Time{}, false
	case !w.known:
		w.end(now, pod.Grace(p), nil, "gone from its source")
		return time.Time{}, false
	case p.DeletionTimestamp != nil && !pod.IsMirror(p):
		w.end(now, pod.Grace(p), nil, "deleted")
		return time.Time{}, false
	case pod.IsTerminal(p) && !pod.IsStatic(p):
		w.end(now, pod.Grace(p), nil, "its stored phase is "+string(p.Status.Phase))
		return time.Time{}, false
	}
	return time.Time{}, true
}

// judgeLife ends a pod that is done, or over its time.
func (w *worker) judgeLife(now time.Time, have pod.Runtime) (next time.Time) {
	p := w.spec
	if podplan.Done(p, have) {
		w.end(now, pod.Grace(p), nil, "done")
		return time.Time{}
	}
	if p.Spec.ActiveDeadlineSeconds != nil {
		until := w.started.Add(pod.Seconds(*p.Spec.ActiveDeadlineSeconds))
		if !now.Before(until) {
			const message = "Pod was active on the node longer than the specified deadline"
			if w.end(now, pod.Grace(p), &status.Override{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: message, Unready: true}, "over its deadline") {
				w.s.cfg.Events.Pod(p, "", v1.EventTypeNormal, pod.EventDeadlineExceeded, message)
			}
			return time.Time{}
		}
		return until
	}
	return time.Time{}
}

// admitOnce lets the pod be judged on its arrival. A pod whose containers are
// there already was admitted by an earlier agent. It reports whether the pod has to
// wait for others to end, or for those who are asked for what it is to be given.
func (w *worker) admitOnce(ctx context.Context, tasks *sync.WaitGroup, now time.Time, have pod.Runtime) (waits bool) {
	if w.admitted || w.rejected {
		return false
	}
	v := w.s.cfg.Allocation.Admit(ctx, w.desired, !have.Empty())
	if ctx.Err() != nil {
		return true // the next agent judges
	}
	w.learn(w.s.cfg.Allocation.Consider(w.desired))
	w.spec = podplan.Renew(w.spec, have, w.renewed)
	w.await(v.Late)
	if r := v.Rejection; r != nil {
		w.refuse(now, r.Reason, r.Message)
		return false
	}
	if v.Waits {
		return true
	}
	if have.Empty() && !w.s.cfg.Resources.Confirmed(w.spec) {
		return w.confirm(ctx, tasks, now)
	}
	w.admitted = true
	return false
}

// confirm has those asked outside who give the pod what was reserved for it. It
// reports whether the pod waits for them.
func (w *worker) confirm(ctx context.Context, tasks *sync.WaitGroup, now time.Time) (waits bool) {
	w.mu.Lock()
	no := w.denied
	w.mu.Unlock()
	if no != nil {
		w.s.cfg.Allocation.Refused(no.Reason)
		w.refuse(now, no.Reason, no.Message)
		return false
	}
	p := w.spec // the specification is the turn's, not the task's
	w.once(ctx, tasks, confirmResources, func(ctx context.Context) error {
		no := w.s.cfg.Resources.Confirm(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err() // the pod goes, or the next agent asks
		}
		w.mu.Lock()
		w.denied = no
		w.mu.Unlock()
		return nil
	})
	return true
}

// refuse ends a pod that cannot run here.
func (w *worker) refuse(now time.Time, reason, message string) {
	w.rejected = true
	w.story.refused = &explain.Refusal{Reason: reason, Message: message}
	w.s.cfg.Events.Pod(w.spec, "", v1.EventTypeWarning, reason, message)
	w.end(now, pod.Grace(w.spec), &status.Override{Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message, Rejected: true}, "rejected")
}

// end makes the pod go, or shortens the time it has left. It reports whether
// the pod was not going before.
func (w *worker) end(now time.Time, grace time.Duration, o *status.Override, why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.endLocked(now, grace, o, why)
}

func (w *worker) endLocked(now time.Time, grace time.Duration, o *status.Override, why string) bool {
	w.verdictLocked(now)
	deadline := now.Add(grace)
	if w.going != nil {
		// A second deletion may name a shorter period, which counts from now. It
		// never gets longer.
		if grace < w.grace {
			w.grace = grace
			if deadline.Before(w.going.Deadline) {
				w.going = &podplan.Going{Deadline: deadline}
			}
		}
		return false
	}
	w.going = &podplan.Going{Deadline: deadline}
	w.goingWhy, w.goingSince = why, now
	w.grace = grace
	if w.override == nil {
		w.override = o
	}
	w.log.Info("pod is going", "why", why, "grace", grace)
	return true
}
