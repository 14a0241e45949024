package allocation

import (
	"context"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Admit judges a pod on its arrival, once; running: an earlier agent has admitted it. It waits for other admissions,
// and for the disk if a resource manager saves what it has reserved.
func (l *Ledger) Admit(ctx context.Context, p *v1.Pod, running bool) Verdict {
	var v Verdict
	l.exclusively(func(j judging) { v = j.judgeOnce(p, running) })
	if v.Rejection == nil {
		return v
	}
	again := l.cfg.SecondLook(ctx, v.Rejection)
	victims := v.Victims
	if again != nil {
		l.exclusively(func(j judging) { victims = append(victims, j.judge(p, again)...) })
	}
	v = l.verdict(p.UID, victims)
	if v.Rejection != nil && ctx.Err() == nil {
		l.metrics.rejections.WithLabelValues(countedAs(v.Rejection.Reason)).Inc()
	}
	return v
}

// judging admits pods and decides resizes, one after another: there is one at a time.
type judging struct{ *Ledger }

// exclusively calls f while nothing else is judged. Resizes that were requested before are decided first.
func (l *Ledger) exclusively(f func(judging)) {
	l.judging.Lock()
	defer l.judging.Unlock()
	j := judging{l}
	l.mu.Lock()
	clear(l.vacated)
	l.mu.Unlock()
	j.decideQueued()
	f(j)
}

// judgeOnce judges a pod without a second check of the reason for a rejection.
func (j judging) judgeOnce(p *v1.Pod, running bool) Verdict {
	j.countRunning()
	if running {
		j.takeOver(p)
		return Verdict{}
	}
	j.mu.Lock()
	_, known := j.account[p.UID]
	_, waits := j.late[p.UID]
	refused := j.refused[p.UID] != nil
	j.mu.Unlock()
	var victims []Victim
	switch {
	case waits:
		victims = j.judge(p, j.cfg.Judge)
	case !known && !refused:
		victims = j.admitArrivals(p)
	}
	return j.verdict(p.UID, victims)
}

// verdict is the verdict on a pod that was judged.
func (l *Ledger) verdict(uid types.UID, victims []Victim) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.refused[uid]; r != nil {
		return Verdict{
			Rejection: r,
			Victims:   victims,
		}
	}
	return Verdict{
		Waits:   len(l.room[uid]) > 0 || l.late[uid].Waits(),
		Late:    l.late[uid],
		Victims: victims,
	}
}

// hasEndedLocked reports whether a pod has ended, or was removed since judging was locked.
func (j judging) hasEndedLocked(uid types.UID) bool { return j.vacated[uid] || j.ended[uid] }

// countRunning adds the pods that ran when this agent started to the account, before the first pod is judged. If their
// source has not delivered them yet, a stand-in has their allocated resources.
func (j judging) countRunning() {
	if j.counted {
		return
	}
	j.counted = true
	j.mu.Lock()
	allocated := maps.Clone(j.allocated)
	j.mu.Unlock()
	for uid, r := range allocated {
		if !j.cfg.RunningWithoutSource(uid) {
			continue
		}
		j.mu.Lock()
		if _, known := j.account[uid]; !known && !j.hasEndedLocked(uid) {
			j.account[uid] = standIn(uid, r) // its source may not have delivered it yet
		}
		j.mu.Unlock()
	}
	for _, a := range j.cfg.Arrivals(func(types.UID) bool { return false }) {
		if a.Running {
			j.takeOver(a.Pod)
		}
	}
}

// admitArrivals judges p, and with it all pods that have arrived meanwhile, the oldest first. Running pods are counted
// before anything new is judged.
func (j judging) admitArrivals(p *v1.Pod) (victims []Victim) {
	line := j.cfg.Arrivals(func(uid types.UID) bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		a, known := j.account[uid]
		return uid == p.UID || known && !pod.IsStandIn(a) || j.refused[uid] != nil
	})
	line = append(line, Arrival{Pod: p})
	for _, a := range line {
		if a.Running {
			j.takeOver(a.Pod)
		}
	}
	j.cfg.Vacate()
	slices.SortStableFunc(line, func(a, b Arrival) int {
		return a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time)
	})
	for _, a := range line {
		if !a.Running {
			victims = append(victims, j.judge(a.Pod, j.cfg.Judge)...)
		}
	}
	return victims
}

// standIn takes the place of a running pod of which only its resources are known.
func standIn(uid types.UID, r Resources) *v1.Pod {
	p := &v1.Pod{}
	p.UID = uid
	p.Spec.Resources = r.Pod
	for name, rr := range r.Containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name:      name,
			Resources: rr,
		})
	}
	return p
}

// takeOver adds a pod to the account that an earlier agent has admitted. What is allocated to it is in the state file,
// or else taken from its stored status.
func (j judging) takeOver(p *v1.Pod) {
	j.mu.Lock()
	if j.hasEndedLocked(p.UID) {
		j.mu.Unlock()
		return
	}
	r, known := j.allocated[p.UID]
	if !known {
		r = stored(p)
		j.allocateLocked(p.UID, r)
	}
	as := r.On(p)
	j.account[p.UID] = as
	j.mu.Unlock()
	j.cfg.TakeOver(as)
}

// judge adds a pod to the account, or records its rejection. What an earlier agent, which ended during admission, has
// allocated to the pod is kept. A pod that waits for device plugins is in the account, and nothing is allocated to it
// yet. judge returns the pods that have to end for it.
func (j judging) judge(p *v1.Pod, judge Judge) []Victim {
	j.mu.Lock()
	r, known := j.allocated[p.UID]
	others := j.othersLocked(p.UID)
	j.mu.Unlock()
	if !known {
		r = Of(p)
	}
	as := r.On(p)
	no := judge(as, others, known || ran(p))
	var preempted []*v1.Pod
	reason := ""
	if no != nil && !no.Late.Waits() {
		reason = no.Reason
		if preempted, no = j.makeRoom(as, others, no); no != nil {
			j.cfg.Release(p.UID)
		}
	}
	j.mu.Lock()
	gone := j.hasEndedLocked(p.UID)
	var victims []Victim
	if !gone {
		victims = j.enterLocked(as, no, preempted, strings.TrimPrefix(reason, "OutOf"))
	}
	j.unlock()
	if gone {
		j.cfg.Release(p.UID)
	}
	return victims
}

// enterLocked enters what was judged: the rejection, what the pod waits for, or the pod and which pods it preempts,
// with the resource that was exceeded.
func (j judging) enterLocked(p *v1.Pod, no *pod.Rejection, preempted []*v1.Pod, exceeded string) (victims []Victim) {
	delete(j.refused, p.UID)
	if j.late[p.UID].Waits() {
		delete(j.late, p.UID)
		delete(j.account, p.UID)
	}
	switch {
	case no != nil && no.Late.Waits():
		j.account[p.UID], j.late[p.UID] = p, no.Late
		return nil
	case no != nil:
		j.refused[p.UID] = no
		return nil
	}
	j.account[p.UID] = p
	if _, known := j.allocated[p.UID]; !known {
		j.allocateLocked(p.UID, Of(p))
	}
	for _, v := range preempted {
		if _, active := j.account[v.UID]; !active {
			continue // it has ended meanwhile
		}
		j.metrics.preempted.WithLabelValues(exceeded).Inc()
		j.recordLocked(&event{
			pod:     v,
			kind:    v1.EventTypeWarning,
			reason:  EventPreempting,
			message: saysPreempting,
		})
		j.room[p.UID] = append(j.room[p.UID], v.UID)
		victims = append(victims, Victim{
			UID:        v.UID,
			Grace:      pod.Grace(v),
			Reason:     ReasonPreempting,
			Message:    saysPreempting,
			Disruption: disruptionPreempts,
		})
	}
	return victims
}

// ran reports whether the pod's status at the API server shows that a container was created.
func ran(p *v1.Pod) bool {
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	return slices.ContainsFunc(all, func(c v1.ContainerStatus) bool { return c.ContainerID != "" })
}

// makeRoom returns the pods that have to end for p, or the rejection if that does not help.
func (j judging) makeRoom(p *v1.Pod, others []*v1.Pod, no *pod.Rejection) ([]*v1.Pod, *pod.Rejection) {
	pods, err := j.cfg.MakeRoom(p, others, no)
	switch {
	case err != nil:
		return nil, &pod.Rejection{
			Reason:  ReasonUnexpected,
			Message: "Unexpected error while attempting to recover from admission failure: " + err.Error(),
		}
	case len(pods) == 0:
		return nil, no
	}
	return pods, nil
}
