package podplan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// sandboxState is whether the newest sandbox can be used, and if not, why.
type sandboxState string

const (
	sandboxKeep sandboxState = ""
	sandboxDone sandboxState = "done"
)

func (d *syncing) sandboxChange() sandboxState {
	p, have := d.in.Pod, d.in.Have
	if len(have.Sandboxes) > 0 {
		ready := 0
		for _, s := range have.Sandboxes {
			if s.Ready {
				ready++
			}
		}
		newest := have.Sandboxes[0]
		switch {
		case ready > 1:
			return "several sandboxes are ready"
		case newest.Ready && newest.ID == d.in.SandboxWithoutCgroup:
			return "the pod's cgroup is gone"
		case newest.Ready && newest.HostNetwork != p.Spec.HostNetwork:
			return "network mode changed"
		case newest.Ready && !newest.HostNetwork && len(newest.IPs) == 0:
			return "sandbox has no address"
		case newest.Ready:
			return sandboxKeep
		}
	}
	// There is no usable sandbox. A new one is created only if a container is still to run.
	if len(have.Sandboxes)+len(have.Containers) == 0 && !d.view.anyRecorded() {
		return "no sandbox"
	}
	for kind, spec := range pod.Containers(p) {
		if kind != pod.Regular {
			continue
		}
		c, ok := d.view.Instance(spec.Name)
		switch {
		case !ok || c.State == pod.StateCreated: // it never ran
			return "sandbox is gone"
		case c.State != pod.StateExited:
			// It dies with its sandbox. Its restart policy decides whether it is restarted.
			if p.Spec.RestartPolicy != v1.RestartPolicyNever || restartsByItself(spec) {
				return "sandbox is gone"
			}
		case d.view.ShouldRestart(kind, spec, c):
			return "sandbox is gone"
		}
	}
	return sandboxDone
}

func restartsByItself(c *v1.Container) bool {
	return len(c.RestartPolicyRules) > 0 || c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyNever
}

// replaceSandbox stops the containers and sandboxes that cannot be used any more, and then requests a new sandbox.
func (d *syncing) replaceSandbox(why string) {
	in := &d.in
	clear := true
	for _, c := range in.Have.Containers {
		if c.State == pod.StateRunning || c.State == pod.StateUnknown {
			clear = false
			d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseSandboxChanged, why)
		}
	}
	if !clear {
		d.plan.waitFor(Wait{Kind: WaitOldContainers})
		return
	}
	for _, s := range in.Have.Sandboxes {
		if s.Ready {
			clear = false
			d.act(Step{Verb: StopSandbox, Target: Sandbox(s.ID), Reason: why})
		}
	}
	if !clear {
		d.plan.waitFor(Wait{Kind: WaitOldSandbox})
		return
	}
	if !in.NetworkReady && !in.Pod.Spec.HostNetwork {
		d.plan.waitFor(Wait{Kind: WaitNetwork})
		return
	}
	if !d.stopDeadSandboxes(why) {
		d.plan.waitFor(Wait{Kind: WaitOldSandbox})
		return
	}
	if d.waitForDevices() {
		return
	}
	attempt := 0
	if len(in.Have.Sandboxes) > 0 {
		attempt = int(in.Have.Sandboxes[0].Attempt) + 1
	}
	d.plan.waitFor(Wait{Kind: WaitSandbox})
	d.act(Step{Verb: RunSandbox, Target: NewSandbox, Attempt: attempt, Reason: why})
}

// stopDeadSandboxes stops the sandboxes that died by themselves, and reports whether all are stopped: until then the
// runtime holds their addresses and host ports.
func (d *decision) stopDeadSandboxes(why string) bool {
	done := true
	for _, s := range d.in.Have.Sandboxes {
		if s.Ready || d.in.SandboxStopped[s.ID] {
			continue
		}
		done = false
		removed := slices.ContainsFunc(d.plan.Steps, func(step Step) bool { return step.Target == Sandbox(s.ID) })
		if !removed { // RemovePodSandbox stops it first
			d.act(Step{Verb: StopSandbox, Target: Sandbox(s.ID), Reason: why})
		}
	}
	return done
}

// waitForDevices reports whether the pod waits for its resource claims or for device plugins.
func (d *syncing) waitForDevices() bool {
	if d.in.ClaimsPending {
		d.plan.waitFor(Wait{Kind: WaitClaims})
	}
	if d.in.DevicesPending {
		d.plan.waitFor(Wait{Kind: WaitDevices})
	}
	return d.in.ClaimsPending || d.in.DevicesPending
}
