package podplan

// admit plans the steps from the arrival of a pod to its admission:
//
//	name      a static pod waits for another one of the same full name to end
//	recover   what an earlier agent has recorded of the pod is read
//	admit     package allocation judges it; it may have to wait for other pods to end or for device plugins to register
//	confirm   device plugins are asked for what was allocated to it
func (d *decision) admit() {
	in := &d.in
	switch {
	case in.NameTaken:
		d.plan.waitFor(Wait{Kind: WaitName})
	case !in.Recovered:
		d.plan.waitFor(Wait{Kind: WaitRecovery})
		d.act(Step{Verb: Recover, Target: ThePod, Reason: "an earlier agent may have left records"})
	case in.Admission.State == NotAsked:
		d.plan.waitFor(Wait{Kind: in.Admission.wait()})
		d.act(Step{Verb: Admit, Target: ThePod, Reason: "pod has arrived"})
	case in.Admission.State == Waiting:
		d.plan.Shown = true
		d.plan.waitFor(Wait{Kind: in.Admission.wait()})
	default:
		d.plan.Shown = true
		d.plan.waitFor(Wait{Kind: WaitConfirm})
		d.act(Step{Verb: ConfirmResources, Target: ThePod, Reason: "resources are allocated"})
	}
}

// wait is what the pod waits for before it can be admitted.
func (a *Admission) wait() WaitKind {
	switch {
	case !a.Judged:
		return WaitAdmission
	case a.Late:
		return WaitDevices
	}
	return WaitRoom
}
