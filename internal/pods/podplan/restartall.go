package podplan

import (
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
// shows the restart: others that look at the pod would take the containers
// for lost. The restart is also recorded on the disk, for an agent that is started then.

// messageRestartAll is that of a container that was removed to begin anew.
const messageRestartAll = "The container is removed because RestartAllContainers in place"

// showPatience is how long the removal of a trigger waits until the status shows the restart.
const showPatience = 5 * time.Second

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
func (v View) Trigger() (pod.Container, bool) {
	for kind, spec := range pod.Containers(v.Pod) {
		if kind == pod.Ephemeral {
			continue
		}
		c, ok := v.Have.Latest(spec.Name)
		if !ok || c.State != pod.StateExited || v.stoppedForRestart(c) || !inNewestSandbox(v.Have, c) {
			continue
		}
		if r, ok := matchingRule(spec, c.ExitCode); ok && restartsAll(r) {
			return c, true
		}
	}
	return pod.Container{}, false
}

// restartStored reports whether the pod's stored status says that all of its containers
// are being restarted.
func restartStored(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	})
}

// restartAll restarts the pod in its place, and reports whether that is under way.
// A container that has it done again and again is held back like one that is
// restarted alone.
func (d *syncing) restartAll() bool {
	in := &d.in
	trigger, ok := d.view.Trigger()
	if !ok {
		return false
	}
	d.plan.waitFor(Wait{Kind: WaitRestartAll})
	if kind, _, _ := pod.Find(in.Pod, trigger.Name); kind == pod.Regular && d.beginOthers() {
		return true
	}
	if _, busy := in.Busy[KeyOf(Start, Container(trigger.Name))]; busy {
		return true // as in a restart of it alone, its start ends first, and with it its status
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
			d.act(Step{
				Verb:   Remove,
				Target: Instance(c.ID),
				Cause:  CauseRestartAll,
				Reason: "all containers are restarted",
			})
		}
	}
	if !clear {
		return true
	}
	shown := restartStored(in.Pod) || pod.IsStatic(in.Pod)
	if until := trigger.FinishedAt.Add(showPatience); !shown && in.Now.Before(until) && !aheadOfClock(trigger, in.Now) {
		d.plan.wakeAt(until)
		d.plan.waitFor(Wait{Kind: WaitShown})
		return true
	}
	d.act(Step{
		Verb:   Remove,
		Target: Instance(trigger.ID),
		Cause:  CauseRestartAll,
		Reason: "all containers are restarted",
	})
	return true
}

// beginOthers starts regular containers that have not begun yet, and reports whether
// there are any: where one ends as soon as it runs, those after it are to be
// restarted with it all the same. One that cannot start is not waited for.
func (d *syncing) beginOthers() bool {
	in := &d.in
	if !in.VolumesReady || in.ClaimsPending || in.DevicesPending {
		return false
	}
	beginning := false
	for i := range in.Pod.Spec.Containers {
		spec := &in.Pod.Spec.Containers[i]
		_, begun := d.view.Instance(spec.Name)
		_, busy := in.Busy[KeyOf(Start, Container(spec.Name))]
		_, anew := d.view.RecreatedAs(spec.Name)
		img := in.Images[spec.Name]
		failed := in.Now.Before(in.RetryAt[KeyOf(Start, Container(spec.Name))])
		if begun || anew || !busy && (!img.Ready || img.Attempt != d.attempt(spec.Name) || failed) {
			continue
		}
		beginning = true
		d.start(pod.Regular, spec, "not created", pod.Container{}, false)
	}
	return beginning
}

// Anew is the status of the container that is to begin anew as that attempt.
func Anew(name string, attempt int) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name:         name,
		RestartCount: int32(attempt),
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
			Reason:  pod.ReasonRestartingAll,
			Message: messageRestartAll,
		}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: 137,
			Reason:   pod.ReasonRestartingAll,
			Message:  messageRestartAll,
		}},
	}
}
