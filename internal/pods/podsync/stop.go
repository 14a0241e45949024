package podsync

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
)

// stop stops a container. That it is stopped to be started again is recorded before.
func (do performer) stop(step podplan.Step) work {
	c, ok := do.in.Have.ByID(step.Target.Name)
	if !ok {
		return nil
	}
	restarts := &do.w.restarts
	if step.ForRestart {
		restarts.recordStop(c.ID)
	}
	if step.Replace {
		restarts.replaced[c.ID] = endedBefore(do.in.Have, c.Name)
	}
	do.w.termination.reached(true)
	s, log, journal, stop := do.w.s, do.w.log, restarts.journal, do.stopOf(step, c)
	return func(ctx context.Context) (result, error) {
		if step.ForRestart {
			journal.flush(log)
		}
		err := s.cfg.Runtime.StopContainer(ctx, stop)
		res := result{effect: pod.Effect{
			Sandbox:   c.SandboxID,
			Container: c.ID,
			State:     pod.StateExited,
		}}
		if err != nil && ctx.Err() == nil {
			res.outcome = stopFailed{
				id:  c.ID,
				why: killFailure{what: "KillContainer", target: c.Name, err: err},
			}
		}
		return res, err
	}
}

// announceStop records the Killing event and runs the preStop hook of a container that is stopped later.
func (do performer) announceStop(step podplan.Step) work {
	c, ok := do.in.Have.ByID(step.Target.Name)
	if !ok {
		return nil
	}
	s, stop := do.w.s, do.stopOf(step, c)
	return func(ctx context.Context) (result, error) {
		s.cfg.Runtime.AnnounceStop(ctx, stop)
		if ctx.Err() != nil {
			return result{}, ctx.Err()
		}
		return result{outcome: announced{c.ID}}, nil
	}
}

// stopOf returns the request to stop a container.
func (do performer) stopOf(step podplan.Step, c pod.Container) container.Stop {
	spec, t := do.w.source.spec, do.plan.Termination
	stop := container.Stop{
		Pod:       spec,
		Ref:       do.w.ref(do.in.Have),
		Container: c,
		PodIPs:    do.w.shown.podIPs,
		Grace:     max(step.Deadline.Sub(do.w.s.cfg.Now()), 0),
		Announced: do.w.restarts.announced[c.ID],
		AtOnce:    t != nil && t.AtOnce,
		Message:   killing(step.Cause, spec, c.Name),
	}
	if spec != nil {
		_, stop.Spec, _ = pod.Find(spec, c.Name)
	}
	return stop
}

// announced is the outcome of an announced stop.
type announced struct{ id string }

func (a announced) apply(w *worker) { w.restarts.announced[a.id] = true }

// stopFailed is the outcome of a stop that failed: a later exit of the container counts as its own.
type stopFailed struct {
	id  string
	why killFailure
}

func (s stopFailed) apply(w *worker) {
	delete(w.restarts.replaced, s.id)
	if cri.IsUnavailable(s.why.err) {
		w.termination.reached(false)
	}
	s.why.apply(w)
}

// killFailure is a failure that delays the end of a pod. The message of its event is upstream's.
type killFailure struct {
	what   string
	target string
	err    error
}

func (k killFailure) apply(w *worker) {
	p := w.source.spec
	if p == nil || cri.IsUnavailable(k.err) || w.termination.Termination == nil {
		return
	}
	w.s.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedKillPod,
		fmt.Sprintf("error killing pod: failed to %q for %q with %sError: %q", k.what, k.target, k.what,
			cri.Cause(k.err)))
}
