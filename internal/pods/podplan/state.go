package podplan

// State is the state of a pod on this node.
//
//	          recovered, admitted          a reason to terminate
//	Pending ─────────────────────► Syncing ───────────┐
//	   │                                              ▼
//	   └────────── a reason to terminate ───────► Terminating
//	                                                  │ no container runs, no sandbox is ready
//	                                                  ▼
//	                                              Terminated
//	                                                  │ claims, resources, volumes, cgroup released
//	                                                  ▼
//	                                               Released
//	                                                  │ no source has the pod; nothing of it in the
//	                                                  ▼ runtime and on the disk
//	                                                 Gone
//
// A state is computed from facts at each decision, and states only move forward: a pod that was admitted stays
// admitted, and a termination is never cancelled. The one exception is a late fact: if the runtime shows a container or
// a sandbox of a pod that is Terminated or Released, because a call of an earlier agent took that long, the pod is
// Terminating until that is stopped, too. A pod without a specification, of which only the runtime or the disk has
// traces, is never Pending or Syncing.
type State int

// The states, in their order.
const (
	Pending     State = iota // waits for its full name, for its recovery or for its admission
	Syncing                  // containers are started and kept running
	Terminating              // containers and sandboxes are stopped
	Terminated               // nothing runs; what the pod holds on the node is released
	Released                 // the pod holds nothing on the node; its status is final
	Gone                     // nothing is left of the pod, and its worker ends
)

func (s State) String() string {
	return [...]string{"Pending", "Syncing", "Terminating", "Terminated", "Released", "Gone"}[s]
}

// Decide computes the state of a pod, and what to do next for it.
func Decide(in Input) Plan {
	in = Assess(in)
	d := &decision{in: in, view: in.View()}
	d.plan.State, d.plan.Termination, d.plan.Recreated = in.State, in.Termination, in.Recreated
	if d.blind() {
		return d.plan
	}
	d.linkLogs()
	d.recordEviction()
	switch in.State {
	case Gone:
	case Pending:
		d.admit()
	case Syncing:
		d.plan.Shown = true
		r := syncing{decision: d}
		r.run()
	default:
		d.plan.Shown = true
		d.end()
	}
	return d.plan
}

// Assess returns the input with what follows from it: the state as far as it is clear before anything is stopped or
// released, the termination, and the containers that were removed for a restart of all containers. Assess is
// idempotent.
func Assess(in Input) Input {
	if in.Pod != nil {
		in.Recreated = in.View().updateRecreated()
	}
	switch {
	case in.RuntimeUnlisted, in.RuntimeUnread, in.Source.Missing && in.Source.Unsynced, in.Source.Undecided:
		in.State = Pending
	case in.Pod == nil && in.Have.Empty() && !in.Adopted:
		in.State = Gone // a late event of a pod that is gone
	case in.Pod == nil:
		in.State = Terminating
	case in.NameTaken && in.Source.Missing:
		in.State = Gone // nothing of it has ever run
	case in.NameTaken, !in.Recovered:
		in.State = Pending
	default:
		in.Termination = terminate(&in)
		switch {
		case in.Termination != nil:
			in.State = Terminating
		case in.admitted():
			in.State = Syncing
		default:
			in.State = Pending
		}
	}
	return in
}

// blind reports whether too little is known of the pod to act on it.
func (d *decision) blind() bool {
	in := &d.in
	switch {
	case in.RuntimeUnlisted:
		d.plan.waitFor(Wait{Kind: WaitRuntimeList})
	case in.Source.Missing && in.Source.Unsynced:
		d.plan.waitFor(Wait{Kind: WaitSources})
	case in.Source.Undecided:
		d.plan.waitFor(Wait{Kind: WaitDecision})
	case in.RuntimeUnread:
		// The runtime has something of the pod that could not be read yet. To act as if there were nothing could start it
		// twice.
		d.plan.waitFor(Wait{Kind: WaitRuntimeRead})
	default:
		return false
	}
	d.plan.Blind = true
	return true
}

// linkLogs requests the links to the logs of containers under their older names: an earlier agent, or a start whose
// response was lost, may not have made them.
func (d *decision) linkLogs() {
	if d.in.UnlinkedLogs && !d.in.NameTaken && d.in.State != Gone && len(d.in.Have.Containers) > 0 &&
		!d.anyBusy(Remove) && !d.anyBusy(RemoveDirectories) {
		d.act(Step{Verb: LinkLogs, Target: ThePod, Reason: "an earlier agent may not have done it"})
	}
	_, d.linking = d.in.Busy[Key{ThePod, LinkLogs}]
	d.linking = d.linking || len(d.plan.Steps) > 0
}

func (d *decision) anyBusy(v Verb) bool {
	for _, t := range d.in.Busy {
		if t.Verb == v {
			return true
		}
	}
	return false
}
