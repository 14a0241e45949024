package allocation

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Allocate returns the pod with its allocated resources in place of the desired ones. A new request for other resources
// is queued; decided is false until Run has decided it and wakes the pod. Allocate does not wait for decisions.
func (l *Ledger) Allocate(p *v1.Pod) (as *v1.Pod, decided bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	allocated, known := l.allocated[p.UID]
	if !known {
		return p, true
	}
	want := Of(p)
	l.resizes.count(p.UID, allocated, want)
	if want.Equal(allocated) {
		l.resizes.withdraw(p.UID)
		return p, true
	}
	decided = true
	// A stand-in may belong to a pod that has ended; admission of the pod replaces it.
	if a, active := l.account[p.UID]; active && !pod.IsStandIn(a) {
		decided = l.resizes.request(p, want, l.cfg.Now())
	}
	return allocated.On(p), decided
}

// decideQueued decides what is queued.
func (j judging) decideQueued() {
	for {
		j.mu.Lock()
		why, ok := j.resizes.next(j.allocated)
		j.mu.Unlock()
		if !ok {
			return
		}
		j.retry(why)
	}
}

// retry decides the pending resizes that can be accepted, in order, and wakes the pods whose resize has changed its
// state.
func (j judging) retry(why trigger) {
	j.mu.Lock()
	line := j.resizes.feasible()
	j.mu.Unlock()
	var changed []types.UID
	for _, w := range line {
		if !j.decide(w, why) {
			continue
		}
		changed = append(changed, w.pod.UID)
		if why == triggerUpdated {
			why = triggerResized // the next ones may use what this one released
		}
	}
	j.wake(changed)
}

// decide decides one pending resize, and reports whether its condition has changed. A request that was withdrawn or
// replaced meanwhile is not decided.
func (j judging) decide(w *pendingResize, why trigger) bool {
	uid := w.pod.UID
	j.mu.Lock()
	allocated, others := j.allocated[uid], j.othersLocked(uid)
	current := j.resizes.pending[uid] == w
	j.mu.Unlock()
	if !current {
		return false
	}
	d := decide(j.cfg.Rules, j.cfg.Judge, w.pod, allocated, others)
	j.mu.Lock()
	defer j.unlock()
	if j.resizes.pending[uid] != w {
		return false
	}
	if d.accepted() {
		j.account[uid] = w.pod
		j.allocateLocked(uid, w.want)
	}
	e, changed := j.resizes.apply(w, d, why)
	j.recordLocked(e)
	return changed
}

// Gap compares p, which has its allocated resources, with what its running containers have actuated. For a container
// without a record the pod's stored status counts, else what is allocated.
func (l *Ledger) Gap(p *v1.Pod, have pod.Runtime) Gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	actuated := l.actuated[p.UID]
	for kind, c := range pod.Containers(p) {
		inst, ok := have.Latest(c.Name)
		if _, known := actuated.Containers[c.Name]; known || kind == pod.Ephemeral || !ok ||
			inst.State != pod.StateRunning {
			continue
		}
		l.setActuatedLocked(p, c.Name, stored(p).Containers[c.Name])
		actuated = l.actuated[p.UID]
	}
	return gap(p, have, actuated, l.resizes.failing(p.UID))
}

// Starting records the resources that a stopped container is about to be started with, if they are not those that it
// had. It returns once the file is written: without that, a restarted agent would take the new instance for one that
// still lacks what is allocated, and would restart it once more.
func (l *Ledger) Starting(p *v1.Pod, container string, r v1.ResourceRequirements) {
	l.mu.Lock()
	old, known := l.actuated[p.UID].Containers[container]
	if !known || same(old, r) {
		l.mu.Unlock()
		return
	}
	l.setActuatedLocked(p, container, r)
	l.mu.Unlock()
	if !l.write() {
		l.cfg.Log.Warn("cannot save actuated resources of the container; an agent restart may restart it again",
			"pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "containerName", container)
	}
}

// SetActuated records what a container has actuated: it was started with these resources, or updated to them.
func (l *Ledger) SetActuated(p *v1.Pod, container string, r v1.ResourceRequirements) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setActuatedLocked(p, container, r)
}

func (l *Ledger) setActuatedLocked(p *v1.Pod, container string, r v1.ResourceRequirements) {
	now, known := l.actuated[p.UID]
	if old, ok := now.Containers[container]; ok && same(old, r) {
		return
	}
	next := now.with(container, r)
	if !known {
		next.Pod = stored(p).Pod
	}
	l.actuated[p.UID] = next
	l.writeLocked()
}

// SetPodActuated records that the pod-level resources of p are actuated. It returns once the checkpoint is written:
// containers that were stopped for the resize are started next, and without the checkpoint a restarted agent would
// restart them once more.
func (l *Ledger) SetPodActuated(p *v1.Pod) {
	l.mu.Lock()
	now, known := l.actuated[p.UID]
	if !known || samePod(now.Pod, p.Spec.Resources) {
		l.mu.Unlock()
		return
	}
	now.Pod = p.Spec.Resources
	l.actuated[p.UID] = now
	l.mu.Unlock()
	if !l.write() {
		l.cfg.Log.Warn("cannot save actuated resources of the pod; an agent restart may restart its containers again",
			"pod", p.Namespace+"/"+p.Name, "podUID", p.UID)
	}
}

// Actuated returns the pod with its actuated resources; those of p where none are recorded.
func (l *Ledger) Actuated(p *v1.Pod) *v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.actuated[p.UID].On(p)
}

// Progress records whether an accepted resize of the pod still has to be actuated.
func (l *Ledger) Progress(p *v1.Pod, open bool) {
	l.mu.Lock()
	defer l.unlock()
	l.recordLocked(l.resizes.actuated(p, open))
}

// Tried records the result of an attempt to actuate a resize.
func (l *Ledger) Tried(p *v1.Pod, took time.Duration, failed error) {
	l.mu.Lock()
	defer l.unlock()
	l.metrics.took(took, failed)
	problem := ""
	if failed != nil {
		problem = pod.TextOf(failed)
	}
	l.recordLocked(l.resizes.attempted(p, problem))
}

// Failing reports whether the last attempt to actuate a resize failed.
func (l *Ledger) Failing(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resizes.failing(uid)
}

// Conditions returns the conditions that show the state of the pod's resizes.
func (l *Ledger) Conditions(uid types.UID) []v1.PodCondition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resizes.conditions(uid)
}
