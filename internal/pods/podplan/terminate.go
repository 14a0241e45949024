package podplan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// TerminationReason is why a pod is terminated.
type TerminationReason string

// The reasons, in the order of their precedence if several come up at once. The first reason is kept.
const (
	Evicted          TerminationReason = "evicted"
	Preempted        TerminationReason = "preempted"
	NodeShutdown     TerminationReason = "the node shuts down"
	ForceDeleted     TerminationReason = "deleted by force"
	SourceRemoved    TerminationReason = "removed from its source"
	Deleted          TerminationReason = "deleted"
	PhaseTerminal    TerminationReason = "its stored phase is terminal"
	Rejected         TerminationReason = "rejected"
	Completed        TerminationReason = "completed"
	DeadlineExceeded TerminationReason = "active deadline exceeded"
)

// Termination is why and by when a pod is terminated. It is never cancelled: the first reason stays, and the deadline
// only moves earlier, unless the runtime is unavailable.
type Termination struct {
	Reason   TerminationReason
	Since    time.Time
	Grace    time.Duration // the shortest period that was requested
	Deadline time.Time     // when the grace period is over
	AtOnce   bool          // containers are killed without SIGTERM
	// Unreached says that the runtime was unavailable when a container was to be stopped: the grace period begins with the
	// next stop.
	Unreached bool
	Override  *Override // what the status shows instead of what containers ended with; nil for nothing
	// GoneBy is when an evicted pod should have ended; zero: it is not watched.
	GoneBy time.Time
}

// Override is what the status shows as the end of a pod that was rejected, evicted, or exceeded its deadline. It is
// shown when no container runs any more.
type Override struct {
	Phase   v1.PodPhase
	Reason  string
	Message string
	// Rejected says that the pod never ran here: no containers are shown.
	Rejected bool
	// Unready says that the pod is not ready any more, although its containers still run.
	Unready bool
	// Lenient says that a pod which ends without failure is Succeeded, with neither Reason nor Message. That does not
	// apply to a static pod, which should run until it is removed.
	Lenient    bool
	Disruption string // the reason of a DisruptionTarget condition; empty for none
	// DisruptionMessage is that condition's; empty: Message.
	DisruptionMessage string
}

// EvictionRecord is a request of another part to terminate the pod, as it is recorded on the disk.
type EvictionRecord struct {
	AtOnce   bool              `json:"atOnce,omitempty"`
	Deadline time.Time         `json:"deadline"`
	Reason   TerminationReason `json:"why"`
	Override Override          `json:"override"`
}

// recordPatience is how long the termination of an evicted pod waits for its record to be written: the node needs the
// pod's resources soon.
const recordPatience = 500 * time.Millisecond

// leastGoneBy is the minimum time after which an evicted pod that has not ended is reported.
const leastGoneBy = 10 * time.Second

const deadlineMessage = "Pod was active on the node longer than the specified deadline"

// terminate returns the termination of the pod; nil if there is no reason for one.
func terminate(in *Input) *Termination {
	t, e := in.Termination, &in.Eviction
	if t == nil && e.Earlier != nil {
		t = e.Earlier.termination(in.Now)
	}
	own := in.ownReason()
	if p := e.Pending; p != nil && (t != nil || own != nil || len(e.Requests) > 0 || e.due(in.Now)) {
		t = t.and(p.termination(in.Now)) // before what came after it
	}
	for i := range e.Requests {
		t = t.and(e.Requests[i].termination(in.Now))
	}
	return t.and(own).reaching(in.Now)
}

// ownReason returns the first reason to terminate the pod that does not come from another part.
func (in *Input) ownReason() *Termination {
	p, grace := in.Pod, pod.Grace(in.Pod)
	_, ahead := in.activeDeadline()
	switch {
	case in.Source.Missing && (p.DeletionTimestamp != nil || in.Source.Forced):
		// Its object was removed before the pod had ended. The update that set the grace period to 0 just before may
		// not have been seen.
		return in.because(ForceDeleted, time.Second, nil)
	case in.Source.Missing:
		return in.because(SourceRemoved, grace, nil)
	case p.DeletionTimestamp != nil && !pod.IsMirror(p):
		return in.because(Deleted, grace, nil)
	case pod.IsTerminal(p) && !pod.IsStatic(p):
		return in.because(PhaseTerminal, grace, nil)
	case in.Admission.Rejection != nil:
		no := in.Admission.Rejection
		return in.because(Rejected, grace, &Override{
			Phase:    v1.PodFailed,
			Reason:   no.Reason,
			Message:  "Pod was rejected: " + no.Message,
			Rejected: true,
		})
	case !in.admitted():
		return nil
	case in.View().Done():
		return in.because(Completed, grace, nil)
	case p.Spec.ActiveDeadlineSeconds != nil && !ahead:
		return in.because(DeadlineExceeded, grace, &Override{
			Phase:   v1.PodFailed,
			Reason:  "DeadlineExceeded",
			Message: deadlineMessage,
			Unready: true,
		})
	}
	return nil
}

// activeDeadline is when the pod's active deadline is over, if that is still to come.
func (in *Input) activeDeadline() (until time.Time, ahead bool) {
	seconds := in.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return time.Time{}, false
	}
	until = in.Admission.Started.Add(pod.Seconds(*seconds))
	return until, in.Now.Before(until)
}

func (in *Input) because(r TerminationReason, grace time.Duration, o *Override) *Termination {
	return &Termination{
		Reason:   r,
		Since:    in.Now,
		Grace:    grace,
		Deadline: in.Now.Add(grace),
		Override: o,
	}
}

// termination returns the termination that is requested. The deadline of the request may be over if no agent has run
// for a while.
func (e *EvictionRecord) termination(now time.Time) *Termination {
	grace := max(e.Deadline.Sub(now), 0)
	override := e.Override
	return &Termination{
		Reason:   e.Reason,
		Since:    now,
		Grace:    grace,
		Deadline: now.Add(grace),
		AtOnce:   e.AtOnce,
		Override: &override,
		GoneBy:   now.Add(max(grace+grace/2, leastGoneBy)),
	}
}

// due reports whether the pending eviction comes into force.
func (e *Eviction) due(now time.Time) bool {
	return e.Recorded || !now.Before(e.Since.Add(recordPatience))
}

// and returns the termination after another reason has come up. It keeps its reason; only a shorter grace period of the
// other one counts, from the time of that reason. The deadline never moves later.
func (t *Termination) and(next *Termination) *Termination {
	switch {
	case next == nil:
		return t
	case t == nil:
		return next
	}
	sum := *t
	sum.AtOnce = sum.AtOnce || next.AtOnce
	if next.Grace < sum.Grace {
		sum.Grace = next.Grace
		if next.Deadline.Before(sum.Deadline) {
			sum.Deadline = next.Deadline
		}
	}
	return &sum
}

// reaching returns the termination with a deadline counted from now, if the last stop has not reached the runtime. The
// deadline of an eviction or a shutdown of the node stays.
func (t *Termination) reaching(now time.Time) *Termination {
	if t == nil || !t.Unreached || t.Reason == Evicted || t.Reason == Preempted || t.Reason == NodeShutdown {
		return t
	}
	next := *t
	next.Deadline = now.Add(t.Grace)
	return &next
}

// recordEviction requests the record of a pending eviction, and wakes the pod when that takes too long.
func (d *decision) recordEviction() {
	in := &d.in
	if in.Pod == nil || in.NameTaken || !in.Recovered || in.Eviction.Pending == nil || in.Eviction.Recorded {
		return
	}
	d.act(Step{Verb: RecordEviction, Target: ThePod, Reason: string(in.Eviction.Pending.Reason)})
	if in.Termination == nil {
		d.plan.wakeAt(in.Eviction.Since.Add(recordPatience))
	}
}

// watchEnd reports once that an evicted pod has not ended in time.
func (d *decision) watchEnd(stopped bool) {
	t := d.in.Termination
	if t == nil || t.GoneBy.IsZero() {
		return
	}
	overdue := !d.in.Now.Before(t.GoneBy)
	if !stopped && !overdue {
		d.plan.wakeAt(t.GoneBy)
		return
	}
	d.plan.Overdue = !stopped
	watched := *t
	watched.GoneBy = time.Time{}
	d.plan.Termination = &watched
}
