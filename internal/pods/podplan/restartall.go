package podplan

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// When a container ends in a way that its rules answer with RestartAllContainers
// (KEP-5532), everything that runs in the pod is stopped with no grace, and all
// containers but the ephemeral ones are removed; then the pod begins anew in its
// sandbox. All of it follows from what there is: while the container whose end
// asked for it, the trigger, is in the runtime, the pod is being restarted. It is
// therefore the last that is removed, and not before the pod's stored status
// tells of the restart: others that look at the pod would take the containers
// for lost. An agent that is started then has it in writing, too.

// messageRestartAll is that of a container that was removed to begin anew.
const messageRestartAll = "The container is removed because RestartAllContainers in place"

// tellPatience is how long the end of a trigger waits to be told of.
const tellPatience = 5 * time.Second

// CanRestartAll reports whether a rule of any container restarts all of them.
func CanRestartAll(p *v1.Pod) bool {
	for _, c := range pod.Containers(p) {
		if slices.ContainsFunc(c.RestartPolicyRules, restartsAll) {
			return true
		}
	}
	return false
}

func restartsAll(r v1.ContainerRestartRule) bool {
	return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// WithoutRestartAll is the pod as a node sees it that does not know the action.
func WithoutRestartAll(p *v1.Pod) *v1.Pod {
	if !CanRestartAll(p) {
		return p
	}
	p = p.DeepCopy()
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].RestartPolicyRules = slices.DeleteFunc(list[i].RestartPolicyRules, restartsAll)
		}
	}
	return p
}

// Trigger is the container whose end has the whole pod restarted.
func Trigger(p *v1.Pod, have pod.Runtime) (pod.Container, bool) {
	for kind, spec := range pod.Containers(p) {
		if kind == pod.Ephemeral {
			continue
		}
		c, ok := have.Latest(spec.Name)
		if !ok || c.State != pod.StateExited || c.Recalled || !inNewestSandbox(have, c) {
			continue
		}
		if r, ok := matchingRule(spec, c.ExitCode); ok && restartsAll(r) {
			return c, true
		}
	}
	return pod.Container{}, false
}

// Told reports whether the pod's stored status says that all of its containers
// are being restarted.
func Told(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	})
}

// restartAll restarts the pod in its place, and reports whether that is under way.
// A container that has it done again and again is held back like one that is
// restarted alone.
func (d *decision) restartAll() bool {
	in := &d.in
	trigger, ok := Trigger(in.Pod, in.Have)
	if !ok {
		return false
	}
	d.plan.waitFor("restart of all containers")
	if kind, _, _ := pod.Find(in.Pod, trigger.Name); kind == pod.Regular && d.beginOthers() {
		return true
	}
	if _, busy := in.Busy[trigger.Name]; busy {
		return true // as in a restart of it alone, its start ends first, and with it what is said of it
	}
	if d.held(trigger) {
		d.tend()
		return true
	}
	clear := !d.starting
	for _, c := range in.Have.Containers {
		if alive(c) {
			clear = false
			d.stop(c, in.Now, CauseRestartAll, "all containers are restarted")
		}
	}
	if !clear {
		return true
	}
	for _, c := range in.Have.Containers {
		if kind, _, ok := pod.Find(in.Pod, c.Name); ok && kind != pod.Ephemeral && c.ID != trigger.ID {
			clear = false
			d.act(Step{Verb: Remove, Target: c.ID, Cause: CauseRestartAll, Reason: "all containers are restarted"})
		}
	}
	if !clear {
		return true
	}
	if until := trigger.FinishedAt.Add(tellPatience); !Told(in.Pod) && !pod.IsStatic(in.Pod) && in.Now.Before(until) && !aheadOfClock(trigger, in.Now) {
		d.plan.wakeAt(until)
		d.plan.waitFor("its status to tell of the restart")
		return true
	}
	d.act(Step{Verb: Remove, Target: trigger.ID, Cause: CauseRestartAll, Reason: "all containers are restarted"})
	return true
}

// beginOthers starts regular containers that have not begun yet, and reports whether
// there are any: where one ends as soon as it runs, those after it are to be
// restarted with it all the same. One that cannot start is not waited for.
func (d *decision) beginOthers() bool {
	in := &d.in
	if !in.VolumesReady || in.ClaimsPending || in.DevicesPending {
		return false
	}
	beginning := false
	for i := range in.Pod.Spec.Containers {
		spec := &in.Pod.Spec.Containers[i]
		_, begun := Instance(in.Pod, in.Have, spec.Name)
		_, busy := in.Busy[spec.Name]
		_, anew := Renewed(in.Pod, spec.Name)
		img := in.Images[spec.Name]
		if begun || anew || !busy && (!img.Ready || img.Attempt != d.attempt(spec.Name) || in.Now.Before(in.RetryAt[spec.Name])) {
			continue
		}
		beginning = true
		d.start(pod.Regular, spec, "not created", pod.Container{}, false)
	}
	return beginning
}

// Renewed reports whether the stored status tells of a container that was removed
// to begin anew, and as which attempt.
func Renewed(p *v1.Pod, name string) (attempt int, ok bool) {
	s, ok := recorded(p, name)
	if !ok || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.Reason != pod.ReasonRestartingAll {
		return 0, false
	}
	return int(s.RestartCount), true
}

// Anew is the status of the container that is to begin anew as that attempt.
func Anew(name string, attempt int) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, RestartCount: int32(attempt),
		State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: pod.ReasonRestartingAll, Message: messageRestartAll}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: pod.ReasonRestartingAll, Message: messageRestartAll}}}
}

// Renew writes into the pod's stored status which containers a restart of all has
// removed. The API server learns of it later than the agent does, and may be away;
// without it the containers would be taken for lost. anew is the agent's memory of
// them, with the number of their next attempt; it is kept up to date here.
func Renew(p *v1.Pod, have pod.Runtime, anew map[string]int) *v1.Pod {
	for name, next := range renewals(p, have) {
		anew[name] = max(anew[name], next)
	}
	var renewed *v1.Pod
	for name, next := range anew {
		c, held := have.Latest(name)
		switch {
		case held && c.Attempt > next, held && c.Attempt == next && tells(p, name, next):
			delete(anew, name) // restarted since, in the ordinary way, or known to all
			continue
		case held && c.Attempt < next:
			continue // not removed yet
		}
		if renewed == nil {
			shallow := *p
			renewed = &shallow
		}
		renewed.Status = withStatus(renewed, Anew(name, next))
	}
	return cmp.Or(renewed, p)
}

// tells reports whether the stored status tells that a container began anew as that
// attempt.
func tells(p *v1.Pod, name string, attempt int) bool {
	told, ok := Renewed(p, name)
	return ok && told == attempt
}

// withStatus is the pod's status with that of one container replaced.
func withStatus(p *v1.Pod, s v1.ContainerStatus) v1.PodStatus {
	st := p.Status
	list := &st.ContainerStatuses
	if kind, _, _ := pod.Find(p, s.Name); kind != pod.Regular {
		list = &st.InitContainerStatuses
	}
	next := []v1.ContainerStatus{s}
	for _, old := range *list {
		if old.Name != s.Name {
			next = append(next, old)
		}
	}
	*list = next
	return st
}

// renewals are the containers that a restart of all has removed or will have
// removed, with the number of their next attempt.
func renewals(p *v1.Pod, have pod.Runtime) map[string]int {
	_, triggered := Trigger(p, have)
	if !triggered && !Told(p) {
		return nil
	}
	next := map[string]int{}
	for kind, spec := range pod.Containers(p) {
		if kind == pod.Ephemeral {
			continue
		}
		_, held := have.Latest(spec.Name)
		if c, ok := Instance(p, have, spec.Name); ok && (triggered || !held) {
			next[spec.Name] = c.Attempt + 1
		}
	}
	return next
}
