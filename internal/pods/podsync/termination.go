package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// termination is the termination of the pod, and the requests of others for it.
type termination struct {
	*podplan.Termination // nil: the pod is not terminated
	eviction             podplan.Eviction
}

// receive adds a request to terminate the pod. Only the first is recorded on the disk, and only while the pod is not
// terminating: later ones can only shorten its grace period.
func (t *termination) receive(r request, now time.Time) {
	e := &t.eviction
	switch {
	case r.record && t.Termination == nil && e.Pending == nil && len(e.Requests) == 0:
		e.Pending, e.Since = &r.EvictionRecord, now
	case len(e.Requests) > 0:
		merge(&e.Requests[0], r.EvictionRecord)
	default:
		e.Requests = append(e.Requests, r.EvictionRecord)
	}
}

// enter stores the termination that was decided. It includes all requests.
func (t *termination) enter(next *podplan.Termination) {
	if next == nil {
		return
	}
	t.Termination = next
	t.eviction.Pending, t.eviction.Requests, t.eviction.Earlier = nil, nil, nil
}

// reached records whether the last stop of a container has reached the runtime, or is about to.
func (t *termination) reached(is bool) {
	if t.Termination == nil || t.Unreached == !is {
		return
	}
	next := *t.Termination
	next.Unreached = !is
	t.Termination = &next
}

// beginTermination reports that the pod is terminating.
func (w *worker) beginTermination(now time.Time, t *podplan.Termination, in *podplan.Input) {
	w.log.Info("pod is terminating", "reason", t.Reason, "gracePeriod", t.Grace)
	if in.Eviction.Pending != nil && !in.Eviction.Recorded && now.After(in.Eviction.Since) &&
		(t.Reason == podplan.Evicted || t.Reason == podplan.Preempted) {
		w.log.Warn("evicting the pod before its eviction is recorded: the disk is slow",
			"waited", now.Sub(in.Eviction.Since))
	}
	if t.Reason == podplan.DeadlineExceeded {
		w.s.cfg.Events.Pod(w.source.spec, "", v1.EventTypeNormal, pod.EventDeadlineExceeded, t.Override.Message)
	}
}

// recordEviction writes the record of an eviction before anything of the pod is stopped.
func (do performer) recordEviction(record podplan.EvictionRecord) work {
	s, uid, log := do.w.s, do.w.uid, do.w.log
	return func(context.Context) (result, error) {
		// The pod may not have its directory yet.
		err := s.cfg.Disk.Make(uid)
		if err == nil {
			err = s.cfg.Disk.NoteEviction(uid, record)
		}
		if err != nil {
			log.Warn("failed to record the eviction of the pod; a restarted agent will not know of it", "err", err)
		}
		return result{outcome: evictionRecorded{}}, nil
	}
}

// evictionRecorded is the outcome that the eviction is on the disk, or cannot be written.
type evictionRecorded struct{}

func (evictionRecorded) apply(w *worker) { w.termination.eviction.Recorded = true }
