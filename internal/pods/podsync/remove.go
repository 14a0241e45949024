package podsync

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
)

// remove removes a container. One that was created and never started is read again before: see begun.
func (do performer) remove(step podplan.Step) work {
	c, ok := do.in.Have.ByID(step.Target.Name)
	if !ok {
		return nil
	}
	restart := step.Cause == podplan.CauseRestartAll
	if restart {
		do.w.restarts.record()
		view := do.in.View()
		if trigger, ok := view.Trigger(); ok && trigger.ID == c.ID {
			do.w.restarts.trigger = c.Name
		}
	}
	s, uid, ref, journal := do.w.s, do.w.uid, do.w.ref(do.in.Have), do.w.restarts.journal
	log := do.w.log
	return func(ctx context.Context) (result, error) {
		if restart {
			journal.flush(log) // before anything is removed
		}
		if c.State == pod.StateCreated {
			if begun, err := s.begun(ctx, uid, c); err != nil || begun.Container != "" {
				return result{effect: begun}, err
			}
		}
		ctx, end := s.traceCollect(ctx)
		defer end()
		err := s.cfg.Runtime.RemoveContainer(ctx, container.Removal{
			Ref:       ref,
			Container: c,
			KeepLogs:  restart,
		})
		effect := pod.Effect{
			Sandbox:   c.SandboxID,
			Container: c.ID,
			Gone:      true,
		}
		return result{effect: effect}, err
	}
}

// begun reads the pod again to find out whether a container that was observed as created has started since: the
// response to its start and all events may be lost, or an earlier agent had requested the start. Removing such a
// container would kill it or lose its exit status, and it would run twice. begun returns the state that the container
// has reached; an empty effect if it has not started, or is gone.
func (s *Syncer) begun(ctx context.Context, uid types.UID, c pod.Container) (pod.Effect, error) {
	have, err := s.cfg.Runtime.Refresh(ctx, uid)
	if err != nil {
		return pod.Effect{}, fmt.Errorf("see whether container %s has begun: %w", c.Name, err)
	}
	if now, ok := have.ByID(c.ID); ok && now.State != pod.StateCreated {
		return pod.Effect{
			Sandbox:   c.SandboxID,
			Container: c.ID,
			State:     now.State,
		}, nil
	}
	return pod.Effect{}, nil
}
