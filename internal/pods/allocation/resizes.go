package allocation

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resizes are the resizes of pods, from the request until they are actuated. [Ledger.mu] guards them.
type resizes struct {
	metrics  *metrics
	queue    []undecided // oldest first
	queued   chan struct{}
	deferred chan struct{} // both of capacity 1

	pending  map[types.UID]*pendingResize // not accepted
	progress map[types.UID]*progress      // accepted and not actuated
	counted  map[types.UID]Resources      // the request that was counted last
}

// undecided is a reason to decide pending resizes: a new request, or without a request the removal of a pod.
type undecided struct {
	request *pendingResize
	why     trigger
}

// progress is a resize that is allocated and not actuated yet.
type progress struct {
	generation int64
	problem    string
}

func newResizes(m *metrics) resizes {
	return resizes{
		metrics:  m,
		queued:   make(chan struct{}, 1),
		deferred: make(chan struct{}, 1),
		pending:  map[types.UID]*pendingResize{},
		progress: map[types.UID]*progress{},
		counted:  map[types.UID]Resources{},
	}
}

// signal adds to a channel of capacity 1 unless it is full.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// count counts what a request changes, once for each request.
func (r *resizes) count(uid types.UID, allocated, want Resources) {
	before, counted := r.counted[uid]
	if !counted {
		before = allocated
	}
	if before.Equal(want) {
		return
	}
	r.counted[uid] = want
	for _, c := range requests(before, want) {
		r.metrics.requested.WithLabelValues(c.resource, c.requirement, c.operation).Inc()
	}
}

// request queues a request unless it is known, and reports whether it has been decided.
func (r *resizes) request(p *v1.Pod, want Resources, now time.Time) bool {
	next := undecided{
		request: &pendingResize{
			pod:   p,
			want:  want,
			since: now,
		},
		why: triggerUpdated,
	}
	i := slices.IndexFunc(r.queue, func(u undecided) bool { return u.request != nil && u.request.pod.UID == p.UID })
	w := r.pending[p.UID]
	switch {
	case i >= 0 && r.queue[i].request.asks(p, want):
	case i >= 0:
		r.queue[i] = next
	case w != nil && w.asks(p, want):
		return w.reason != ""
	default:
		r.queue = append(r.queue, next)
	}
	signal(r.queued)
	return false
}

// removed queues the removal of a pod, whose resources are available to others now.
func (r *resizes) removed() {
	r.queue = append(r.queue, undecided{why: triggerRemoved})
	signal(r.queued)
}

// withdraw drops the request of a pod whose desired resources are the allocated ones, or that has ended.
func (r *resizes) withdraw(uid types.UID) {
	delete(r.pending, uid)
	r.queue = slices.DeleteFunc(r.queue, func(u undecided) bool { return u.request != nil && u.request.pod.UID == uid })
}

// next takes what was queued first, and adds its request to those that are pending.
func (r *resizes) next(allocated map[types.UID]Resources) (why trigger, ok bool) {
	if len(r.queue) == 0 {
		return "", false
	}
	u := r.queue[0]
	r.queue = r.queue[1:]
	if w := u.request; w != nil {
		w.grows = grows(allocated[w.pod.UID].On(w.pod), w.pod)
		w.succeed(r.pending[w.pod.UID])
		r.pending[w.pod.UID] = w
	}
	return u.why, true
}

// feasible are the pending resizes that can be accepted, in the order in which they are decided.
func (r *resizes) feasible() []*pendingResize {
	var line []*pendingResize
	for _, w := range r.pending {
		if w.reason != v1.PodReasonInfeasible {
			line = append(line, w)
		}
	}
	sortPending(line)
	return line
}

// anyDeferred reports whether any resize is deferred.
func (r *resizes) anyDeferred() bool {
	for _, w := range r.pending {
		if w.reason == v1.PodReasonDeferred {
			return true
		}
	}
	return false
}

// apply records a decision. It returns the event to be sent, if any, and whether the condition of the resize has
// changed.
func (r *resizes) apply(w *pendingResize, d decision, why trigger) (*event, bool) {
	if d.detail != "" {
		r.metrics.infeasible.WithLabelValues(d.detail).Inc()
	}
	if d.accepted() {
		if w.reason == v1.PodReasonDeferred {
			r.metrics.accepted.WithLabelValues(string(why)).Inc()
		}
		delete(r.pending, w.pod.UID)
		r.progress[w.pod.UID] = &progress{generation: w.pod.Generation}
		return &event{
			pod:     w.pod,
			kind:    v1.EventTypeNormal,
			reason:  EventResizeStarted,
			message: "Pod resize started: " + summarize(w.pod, w.pod.Generation, ""),
		}, true
	}
	if d.reason == v1.PodReasonDeferred {
		signal(r.deferred)
	}
	changed := w.reason != d.reason || w.message != d.message
	w.reason, w.message = d.reason, d.message
	if w.event == d.reason {
		return nil, changed // another message is shown by the condition only
	}
	w.event = d.reason
	return &event{
		pod:     w.pod,
		kind:    v1.EventTypeWarning,
		reason:  d.event(),
		message: "Pod resize " + d.reason + ": " + summarize(w.pod, w.pod.Generation, d.message),
	}, changed
}

// actuated records whether an accepted resize is actuated. After a restart of the agent, one that is not actuated is in
// progress again.
func (r *resizes) actuated(p *v1.Pod, open bool) *event {
	at := r.progress[p.UID]
	switch {
	case at != nil && p.Generation < at.generation: // the resize was accepted after p was read
	case open && at == nil:
		r.progress[p.UID] = &progress{generation: p.Generation}
	case !open && at != nil:
		delete(r.progress, p.UID)
		return &event{
			pod:     p,
			kind:    v1.EventTypeNormal,
			reason:  EventResizeCompleted,
			message: "Pod resize completed: " + summarize(p, at.generation, ""),
		}
	}
	return nil
}

// attempted records the result of an attempt to actuate a resize; problem is empty if it succeeded.
func (r *resizes) attempted(p *v1.Pod, problem string) *event {
	at := r.progress[p.UID]
	if at == nil {
		if problem == "" {
			return nil
		}
		at = &progress{generation: p.Generation}
		r.progress[p.UID] = at
	}
	repeated := at.problem == problem
	at.problem = problem
	if problem == "" || repeated {
		return nil
	}
	return &event{
		pod:     p,
		kind:    v1.EventTypeWarning,
		reason:  EventResizeError,
		message: "Pod resize error: " + summarize(p, at.generation, problem),
	}
}

// failing reports whether the last attempt to actuate a resize failed.
func (r *resizes) failing(uid types.UID) bool {
	at := r.progress[uid]
	return at != nil && at.problem != ""
}

// vacate drops the resizes of a pod that has ended.
func (r *resizes) vacate(uid types.UID) {
	r.withdraw(uid)
	delete(r.progress, uid)
}

// conditions returns the conditions that show the state of the pod's resizes.
func (r *resizes) conditions(uid types.UID) []v1.PodCondition {
	var out []v1.PodCondition
	if w := r.pending[uid]; w != nil && w.reason != "" {
		out = append(out, v1.PodCondition{
			Type:               v1.PodResizePending,
			Status:             v1.ConditionTrue,
			Reason:             w.reason,
			Message:            w.message,
			ObservedGeneration: w.pod.Generation,
			LastTransitionTime: metav1.NewTime(w.since),
		})
	}
	if at := r.progress[uid]; at != nil {
		c := v1.PodCondition{
			Type:               v1.PodResizeInProgress,
			Status:             v1.ConditionTrue,
			ObservedGeneration: at.generation,
		}
		if at.problem != "" {
			c.Reason, c.Message = v1.PodReasonError, at.problem
		}
		out = append(out, c)
	}
	return out
}

// numbers returns the numbers of pending resizes by reason, and of those in progress.
func (r *resizes) numbers() (pending map[string]int, inProgress int) {
	pending = map[string]int{v1.PodReasonDeferred: 0, v1.PodReasonInfeasible: 0}
	for _, w := range r.pending {
		if w.reason != "" {
			pending[w.reason]++
		}
	}
	return pending, len(r.progress)
}
