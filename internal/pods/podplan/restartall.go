package podplan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// When a container exits and one of its rules matches with the action RestartAllContainers (KEP-5532), all running
// containers of the pod are stopped without a grace period, and all containers except ephemeral ones are removed. Then
// the containers start again in the same sandbox. The container that exited is the trigger: while the runtime holds it,
// the pod is being restarted. So the trigger is removed last, and only when the pod's stored status shows the restart:
// otherwise clients would take the removed containers for lost. The restart is also recorded on the disk, for an agent
// that starts meanwhile.

// messageRestartAll is the message in the status of a container that was removed for a restart of all containers.
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

// WithoutRestartAll returns the pod without the rules that have this action, for a node that does not support it.
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

// Trigger returns the container whose exit restarts all containers of the pod.
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

// restartAll restarts all containers of the pod in its sandbox, and reports whether a restart is under way. A trigger
// has the same crash back-off as a container that is restarted alone.
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
		return true // as in a restart of it alone, the start that is under way ends first
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

// beginOthers starts regular containers that were never started, and reports whether there are any: the trigger may
// exit before the containers after it are started, and the restart includes them. A container that cannot start is not
// waited for.
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

// Anew returns the status of a container that was removed for the restart and starts again as that attempt.
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
