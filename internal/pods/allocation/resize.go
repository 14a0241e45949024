package allocation

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Consider is the pod with what it was granted in place of what it wants. A new
// wish is judged now, in its place among those that wait.
func (l *Ledger) Consider(p *v1.Pod) *v1.Pod {
	l.mu.Lock()
	granted, known := l.granted[p.UID]
	if !known {
		l.mu.Unlock()
		return p
	}
	want := Of(p)
	l.countRequestsLocked(p.UID, granted, want)
	if want.Equal(granted) {
		delete(l.wishes, p.UID)
		l.mu.Unlock()
		return p
	}
	var woken []types.UID
	// A stand-in may belong to a pod that has ended; admission of the pod replaces it.
	if a, active := l.account[p.UID]; active && !pod.IsStandIn(a) {
		if w := l.wishes[p.UID]; w == nil || !w.want.Equal(want) || w.pod.Generation != p.Generation {
			l.wishLocked(p, want, granted)
			woken = l.retryLocked(triggerUpdated)
		}
		granted = l.granted[p.UID]
	}
	l.mu.Unlock()
	l.wake(slices.DeleteFunc(woken, func(uid types.UID) bool { return uid == p.UID }))
	return granted.On(p)
}

func (l *Ledger) countRequestsLocked(uid types.UID, granted, want Resources) {
	before, counted := l.requests[uid]
	if !counted {
		before = granted
	}
	if before.Equal(want) {
		return
	}
	l.requests[uid] = want
	for _, r := range requests(before, want) {
		l.metrics.requested.WithLabelValues(r.resource, r.requirement, r.operation).Inc()
	}
}

// wishLocked notes what a pod wants. How long it has waited is kept over a new
// wish, and over a restart by its condition.
func (l *Ledger) wishLocked(p *v1.Pod, want, granted Resources) {
	w := &pending{pod: p, want: want, since: l.cfg.Now(), grows: grows(granted.On(p), p)}
	if old := l.wishes[p.UID]; old != nil {
		w.since = old.since
	} else {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending && !c.LastTransitionTime.IsZero() {
				w.since = c.LastTransitionTime.Time
				if c.ObservedGeneration == p.Generation {
					w.told = c.Reason
				}
			}
		}
	}
	l.wishes[p.UID] = w
}

// retryLocked asks again for every wish that may be granted, in order. It tells
// which pods have something new.
func (l *Ledger) retryLocked(why trigger) []types.UID {
	var line []*pending
	for _, w := range l.wishes {
		if w.reason != v1.PodReasonInfeasible {
			line = append(line, w)
		}
	}
	sortPending(line)
	var changed []types.UID
	for _, w := range line {
		if l.askLocked(w, why) {
			changed = append(changed, w.pod.UID)
			if why == triggerUpdated {
				why = triggerResized // those behind it profit from what it gave back
			}
		}
	}
	return changed
}

// askLocked grants a wish or says why not, and reports whether that is news.
func (l *Ledger) askLocked(w *pending, why trigger) bool {
	uid := w.pod.UID
	no := l.cfg.Rules.feasible(w.pod, l.granted[uid])
	if no.detail != "" {
		l.metrics.infeasible.WithLabelValues(no.detail).Inc()
		return l.refuseLocked(w, v1.PodReasonInfeasible, no.message, EventResizeInfeasible)
	}
	if r := l.cfg.Judge(w.pod, l.othersLocked(uid), true); r != nil {
		return l.refuseLocked(w, v1.PodReasonDeferred, r.Message, EventResizeDeferred)
	}
	if w.reason == v1.PodReasonDeferred {
		l.metrics.accepted.WithLabelValues(string(why)).Inc()
	}
	delete(l.wishes, uid)
	l.account[uid] = w.pod
	l.grantLocked(uid, w.want)
	l.progress[uid] = &progress{generation: w.pod.Generation}
	l.cfg.Events.Pod(w.pod, "", v1.EventTypeNormal, EventResizeStarted, "Pod resize started: "+summarize(w.pod, w.pod.Generation, ""))
	return true
}

// refuseLocked keeps a wish that was not granted. An event tells when it comes to
// be so; later words on how much is missing are for the condition alone.
func (l *Ledger) refuseLocked(w *pending, reason, message, event string) bool {
	changed := w.reason != reason || w.message != message
	w.reason, w.message = reason, message
	if w.told != reason {
		w.told = reason
		l.cfg.Events.Pod(w.pod, "", v1.EventTypeWarning, event, "Pod resize "+reason+": "+summarize(w.pod, w.pod.Generation, message))
	}
	if reason == v1.PodReasonDeferred {
		select {
		case l.defers <- struct{}{}:
		default:
		}
	}
	return changed
}

// Gap is what the pod's running containers lack of what p, which shows what it was
// granted, names. A container of which nothing is known has what its pod's stored
// status says, else what was granted.
func (l *Ledger) Gap(p *v1.Pod, have pod.Runtime) Gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	force := l.force[p.UID]
	for kind, c := range pod.Containers(p) {
		inst, ok := have.Latest(c.Name)
		if _, known := force.Containers[c.Name]; known || kind == pod.Ephemeral || !ok || inst.State != pod.StateRunning {
			continue
		}
		l.enforcedLocked(p, c.Name, stored(p).Containers[c.Name])
		force = l.force[p.UID]
	}
	at := l.progress[p.UID]
	return gap(p, have, force, at != nil && at.problem != "")
}

// Starting notes what a container that does not run is about to be started with,
// if that is not what it had. It returns once that is written down: an agent after
// this one would take the new instance for one that still lacks what was granted,
// and restart it once more.
func (l *Ledger) Starting(p *v1.Pod, container string, r v1.ResourceRequirements) {
	l.mu.Lock()
	old, known := l.force[p.UID].Containers[container]
	if !known || same(old, r) {
		l.mu.Unlock()
		return
	}
	l.enforcedLocked(p, container, r)
	l.mu.Unlock()
	if !l.write() {
		l.cfg.Log.Warn("a container may be restarted once too often if this agent dies now", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "container", container)
	}
}

// Enforced notes what a container has in force: it was started with it, or
// updated to it.
func (l *Ledger) Enforced(p *v1.Pod, container string, r v1.ResourceRequirements) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enforcedLocked(p, container, r)
}

func (l *Ledger) enforcedLocked(p *v1.Pod, container string, r v1.ResourceRequirements) {
	now, known := l.force[p.UID]
	if old, ok := now.Containers[container]; ok && same(old, r) {
		return
	}
	next := now.with(container, r)
	if !known {
		next.Pod = stored(p).Pod
	}
	l.force[p.UID] = next
	l.writeLocked()
}

// EnforcedPod notes that the pod-level resources of p are actuated. It returns once the
// checkpoint is written: containers that were stopped for the resize are started next, and
// without the checkpoint a restarted agent would restart them once more.
func (l *Ledger) EnforcedPod(p *v1.Pod) {
	l.mu.Lock()
	now, known := l.force[p.UID]
	if !known || samePod(now.Pod, p.Spec.Resources) {
		l.mu.Unlock()
		return
	}
	now.Pod = p.Spec.Resources
	l.force[p.UID] = now
	l.mu.Unlock()
	if !l.write() {
		l.cfg.Log.Warn("cannot save actuated resources of the pod; an agent restart may restart its containers again",
			"pod", p.Namespace+"/"+p.Name, "uid", p.UID)
	}
}

// InForce is the pod with what it has in force; where nothing is known, with what
// p names.
func (l *Ledger) InForce(p *v1.Pod) *v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.force[p.UID].On(p)
}

// Progress tells how a granted resize stands: whether all of it is in force. The
// first word after a restart that it is not begins it again.
func (l *Ledger) Progress(p *v1.Pod, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.progress[p.UID]
	switch {
	case open && at == nil:
		l.progress[p.UID] = &progress{generation: p.Generation}
	case !open && at != nil:
		delete(l.progress, p.UID)
		l.cfg.Events.Pod(p, "", v1.EventTypeNormal, EventResizeCompleted, "Pod resize completed: "+summarize(p, at.generation, ""))
	}
}

// Tried tells how an attempt to put a resize in force ended.
func (l *Ledger) Tried(p *v1.Pod, took time.Duration, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metrics.took(took, failed)
	at := l.progress[p.UID]
	if at == nil {
		if failed == nil {
			return
		}
		at = &progress{generation: p.Generation}
		l.progress[p.UID] = at
	}
	if failed == nil {
		at.problem = ""
		return
	}
	if problem := pod.TextOf(failed); at.problem != problem {
		at.problem = problem
		l.cfg.Events.Pod(p, "", v1.EventTypeWarning, EventResizeError, "Pod resize error: "+summarize(p, at.generation, at.problem))
	}
}

// Failing reports whether the last attempt to put a resize in force failed.
func (l *Ledger) Failing(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.progress[uid]
	return at != nil && at.problem != ""
}

// Conditions show how the pod's resizes stand.
func (l *Ledger) Conditions(uid types.UID) []v1.PodCondition {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []v1.PodCondition
	if w := l.wishes[uid]; w != nil && w.reason != "" {
		out = append(out, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: w.reason, Message: w.message,
			ObservedGeneration: w.pod.Generation, LastTransitionTime: metav1.NewTime(w.since)})
	}
	if at := l.progress[uid]; at != nil {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: at.generation}
		if at.problem != "" {
			c.Reason, c.Message = v1.PodReasonError, at.problem
		}
		out = append(out, c)
	}
	return out
}
