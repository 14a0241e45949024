package podsync

import (
	"context"

	"keelson/internal/pods/podplan"
)

// performer starts the steps of one plan.
type performer struct {
	w    *worker
	plan podplan.Plan
	in   *podplan.Input // that the plan was made from
}

// perform starts the steps of a plan, each as a task of its own. Immediate steps were taken already.
func (do performer) perform(ctx context.Context) {
	leaving := do.w.s.cfg.Node.Leaving
	for _, step := range do.plan.Steps {
		if step.Verb.Immediate() {
			continue
		}
		if (step.Verb == podplan.RunSandbox || step.Verb == podplan.Start) && leaving != nil && leaving() {
			continue
		}
		if f := do.workOf(step); f != nil {
			do.w.log.Debug("pod step",
				"step", step.Verb, "target", step.Target.Name, "attempt", step.Attempt, "reason", step.Reason)
			do.spawn(ctx, step, f)
		}
	}
}

// workOf returns the work of one step; nil if there is none.
func (do performer) workOf(step podplan.Step) work {
	switch step.Verb {
	case podplan.Recover:
		return do.recover()
	case podplan.ReadLogs:
		return do.readLogs()
	case podplan.LinkLogs:
		return do.linkLogs()
	case podplan.Admit:
		return do.admit()
	case podplan.ConfirmResources:
		return do.confirm()
	case podplan.RecordEviction:
		return do.recordEviction(*do.in.Eviction.Pending)
	case podplan.WriteRestarts:
		return do.writeRestarts()
	case podplan.Resize:
		return do.resize()
	case podplan.RunSandbox:
		return do.runSandbox(step)
	case podplan.StopSandbox:
		return do.stopSandbox(step.Target.Name)
	case podplan.RemoveSandbox:
		return do.removeSandbox(step.Target.Name)
	case podplan.Start:
		return do.start(step)
	case podplan.Stop:
		return do.stop(step)
	case podplan.AnnounceStop:
		return do.announceStop(step)
	case podplan.Remove:
		return do.remove(step)
	}
	return do.releaseTask(step.Verb)
}
