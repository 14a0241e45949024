package podsync

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
)

// remove removes a container. One that was created and never started is read once more: see begun.
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

// begun reads once more whether a container that was seen created has not begun after all:
// the answer to its start may be lost together with every event, or the start was on its
// way for an agent before this one. To remove it would be to end what it does, or to
// forget how it ended, and to have it done twice. It returns what the container has come
// to, and nothing if it has yet to begin, or is gone.
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
