package podsync

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/cri"
)

// runSandbox creates the pod's directories, its cgroup and its sandbox.
func (do performer) runSandbox(step podplan.Step) work {
	s := newSandbox{
		cfg:     &do.w.s.cfg,
		pod:     do.w.source.spec,
		attempt: step.Attempt,
		// A sandbox name that is taken is usually a temporary failure. It is recorded in an event once the pause between
		// attempts is at its maximum.
		long: do.w.tasks.retries[step.Key()].pause == maxPause,
	}
	if len(do.in.Have.Sandboxes) > 0 || len(do.in.Have.Containers) > 0 {
		do.w.s.cfg.Events.Pod(s.pod, "", v1.EventTypeNormal, pod.EventSandboxChanged,
			"Pod sandbox changed, it will be killed and re-created.")
	}
	return s.run
}

// newSandbox is one attempt to create a sandbox.
type newSandbox struct {
	cfg     *Config
	pod     *v1.Pod
	attempt int
	long    bool
}

func (s newSandbox) run(ctx context.Context) (result, error) {
	cfg := s.cfg
	if err := cfg.Disk.Make(s.pod.UID); err != nil {
		return s.fail(pod.EventFailed, "error making pod data directories", err)
	}
	ensure := cfg.Cgroups.EnsurePod
	if s.attempt == 0 { // nothing existed before
		ensure = cfg.Cgroups.MakePod
	}
	if err := ensure(ctx, s.pod); err != nil {
		return s.fail(pod.EventFailedCreateContainer, "unable to ensure pod container exists", err)
	}
	res := result{}
	if s.attempt == 0 {
		res.outcome = cgroupSized{s.pod}
	}
	id, err := cfg.Runtime.RunSandbox(ctx, s.pod, uint32(s.attempt))
	if err != nil {
		_, err = s.fail(pod.EventFailedCreateSandbox, "Failed to create pod sandbox", err)
		return res, err
	}
	res.effect = pod.Effect{
		Sandbox: id,
		State:   pod.StateRunning,
	}
	return res, nil
}

func (s newSandbox) fail(reason, message string, err error) (result, error) {
	recorded := severity(err) == slog.LevelWarn || cri.IsNameTaken(err) && s.long
	if !cri.IsCanceled(err) && recorded {
		s.cfg.Events.Pod(s.pod, "", v1.EventTypeWarning, reason, message+": "+cri.Text(err))
	}
	return result{}, err
}

// cgroupSized is the outcome that the pod's cgroup has the resources of that specification.
type cgroupSized struct{ pod *v1.Pod }

func (c cgroupSized) apply(w *worker) { w.sandboxes.sized = c.pod }

func (do performer) stopSandbox(id string) work {
	cfg, target := &do.w.s.cfg, string(do.w.uid)
	return func(ctx context.Context) (result, error) {
		err := cfg.Runtime.StopSandbox(ctx, id)
		switch {
		case err == nil:
			return result{
				effect:  pod.Effect{Sandbox: id, State: pod.StateExited},
				outcome: sandboxStopped{id},
			}, nil
		case ctx.Err() == nil:
			return result{outcome: killFailure{what: "KillPodSandbox", target: target, err: err}}, err
		}
		return result{}, err
	}
}

// removeSandbox removes a sandbox. One that is not ready may have died by itself: only a stop releases its network.
func (do performer) removeSandbox(id string) work {
	cfg := &do.w.s.cfg
	return func(ctx context.Context) (result, error) {
		if err := cfg.Runtime.StopSandbox(ctx, id); err != nil {
			return result{}, err
		}
		err := cfg.Runtime.RemoveSandbox(ctx, id)
		return result{
			effect:  pod.Effect{Sandbox: id, Gone: true},
			outcome: sandboxStopped{id},
		}, err
	}
}

// sandboxStopped is the outcome of a sandbox that was stopped.
type sandboxStopped struct{ id string }

func (s sandboxStopped) apply(w *worker) { w.sandboxes.stopped[s.id] = true }
