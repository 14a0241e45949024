package allocation

import (
	v1 "k8s.io/api/core/v1"
)

// decision is the result for a resize request; the zero value accepts it.
type decision struct {
	reason  string // Deferred or Infeasible
	message string
	detail  string // of an infeasible resize, for the metric
}

func (d decision) accepted() bool { return d.reason == "" }

// event is the reason of the event about a resize that was not accepted.
func (d decision) event() string {
	if d.reason == v1.PodReasonInfeasible {
		return EventResizeInfeasible
	}
	return EventResizeDeferred
}

// decide decides a resize of a pod. allocated is what the pod has now, others are the other pods of the node.
func decide(rules Rules, judge Judge, want *v1.Pod, allocated Resources, others []*v1.Pod) decision {
	if no := rules.feasible(want, allocated); no.detail != "" {
		return decision{
			reason:  v1.PodReasonInfeasible,
			message: no.message,
			detail:  no.detail,
		}
	}
	if no := judge(want, others, true); no != nil {
		return decision{
			reason:  v1.PodReasonDeferred,
			message: no.Message,
		}
	}
	return decision{}
}

// asks reports whether the request is for the same resources and generation.
func (w *pendingResize) asks(p *v1.Pod, want Resources) bool {
	return w.want.Equal(want) && w.pod.Generation == p.Generation
}

// succeed takes over the time since which a resize is pending: from the pod's former request, or from the condition
// that an earlier agent set.
func (w *pendingResize) succeed(old *pendingResize) {
	if old != nil {
		w.since = old.since
		return
	}
	for _, c := range w.pod.Status.Conditions {
		if c.Type != v1.PodResizePending || c.LastTransitionTime.IsZero() {
			continue
		}
		w.since = c.LastTransitionTime.Time
		if c.ObservedGeneration == w.pod.Generation {
			w.event = c.Reason
		}
	}
}
