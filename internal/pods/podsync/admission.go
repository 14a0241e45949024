package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// admission is the state of the pod's admission.
type admission struct {
	recovered bool // what an earlier agent has recorded was read
	state     podplan.AdmissionState
	judged    bool // once at least
	late      bool // it waits for device plugins
	again     bool // the pod was woken since it was last judged
	rejection *pod.Rejection
	started   time.Time // when the pod started on this node: status.startTime
}

// wake lets a pod that waits be judged again.
func (a *admission) wake() {
	a.again = true
	if a.state == podplan.Waiting {
		a.state = podplan.NotAsked
	}
}

// begin sets when the pod started on this node, once: the start time in the stored status, unless the pod is static,
// else the creation of its oldest sandbox in the runtime, else now.
func (a *admission) begin(spec *v1.Pod, have pod.Runtime, now time.Time) {
	switch {
	case !a.started.IsZero():
	case spec.Status.StartTime != nil && !pod.IsStatic(spec):
		a.started = spec.Status.StartTime.Time
	case len(have.Sandboxes) > 0:
		a.started = have.Sandboxes[len(have.Sandboxes)-1].CreatedAt
	default:
		a.started = now
	}
}

func (a *admission) facts(r *Resources, spec *v1.Pod, have pod.Runtime) podplan.Admission {
	return podplan.Admission{
		State:  a.state,
		Judged: a.judged,
		Late:   a.late,
		// A pod that has a sandbox or containers was confirmed before.
		Unconfirmed: a.state == podplan.Granted && have.Empty() && !r.Confirmed(spec),
		Rejection:   a.rejection,
		Started:     a.started,
	}
}

// reject records that the node rejects the pod. If counted is set, the rejection is counted here: the allocation counts
// only its own.
func (w *worker) reject(no *pod.Rejection, counted bool) {
	if w.admission.rejection != nil {
		return
	}
	if counted {
		w.s.cfg.Allocation.Refused(no.Reason)
	}
	w.admission.rejection = no
	w.history.rejection = &explain.Rejection{
		Reason:  no.Reason,
		Message: no.Message,
	}
	w.s.cfg.Events.Pod(w.source.spec, "", v1.EventTypeWarning, no.Reason, no.Message)
}

// admit judges the pod. A pod whose containers exist already was admitted by an earlier agent.
func (do performer) admit() work {
	do.w.admission.again = false
	s, p, running := do.w.s, do.w.source.desired, !do.in.Have.Empty()
	return func(ctx context.Context) (result, error) {
		v := s.cfg.Allocation.Admit(ctx, p, running)
		for _, victim := range v.Victims {
			s.preempt(victim)
		}
		if ctx.Err() != nil {
			return result{}, ctx.Err() // the next agent judges
		}
		return result{outcome: verdict{v}}, nil
	}
}

// verdict is the verdict of the allocation ledger on the pod.
type verdict struct{ allocation.Verdict }

func (d verdict) apply(w *worker) {
	a, v := &w.admission, d.Verdict
	a.judged, a.late = true, v.Late.Waits()
	w.await(v.Late)
	switch {
	case v.Rejection != nil:
		w.reject(v.Rejection, false)
	case v.Waits && a.again:
		a.state = podplan.NotAsked
	case v.Waits:
		a.state = podplan.Waiting
	default:
		a.state = podplan.Granted
	}
}

// confirm asks device plugins for what was allocated to the pod.
func (do performer) confirm() work {
	s, p := do.w.s, do.w.source.spec
	return func(ctx context.Context) (result, error) {
		no := s.cfg.Resources.Confirm(ctx, p)
		if ctx.Err() != nil {
			return result{}, ctx.Err() // the pod is terminated, or the next agent asks
		}
		return result{outcome: confirmed{no}}, nil
	}
}

// confirmed is the result from device plugins.
type confirmed struct{ rejection *pod.Rejection }

func (c confirmed) apply(w *worker) {
	if c.rejection != nil {
		w.reject(c.rejection, true)
	}
}
