package podsync

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
)

// start starts a container. A restart increases its crash back-off at once.
func (do performer) start(step podplan.Step) work {
	name, p := step.Target.Name, do.in.Pod
	kind, spec, ok := pod.Find(p, name)
	sandbox, ready := do.in.Have.ReadySandbox()
	if !ok || !ready {
		return nil
	}
	target, seen := ephemeralTarget(p, name, do.in.Have)
	view := do.in.View()
	do.w.restarts.count(&view, spec, do.w.s.cfg.Now(), do.w.s.cfg.Backoff)
	s := starting{
		cfg:  &do.w.s.cfg,
		kind: kind,
		start: container.Start{
			Pod:       p,
			Kind:      kind,
			Container: spec,
			Sandbox:   sandbox,
			PodIPs:    do.w.shown.podIPs,
			Attempt:   step.Attempt,
			ImageRef:  do.w.images[name].result.Ref,
			TargetID:  seen.ID,
		},
	}
	return func(ctx context.Context) (result, error) {
		if target != seen.Name { // it is started only once, and of no use without its target
			return s.notConfigured(ctx, fmt.Errorf("unable to find target container %s", target))
		}
		return s.run(ctx)
	}
}

// ephemeralTarget returns the container whose processes an ephemeral container may see, by name and as it was observed;
// empty for none.
func ephemeralTarget(p *v1.Pod, name string, have pod.Runtime) (target string, seen pod.Container) {
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name && e.TargetContainerName != "" {
			seen, _ = have.Latest(e.TargetContainerName)
			return e.TargetContainerName, seen
		}
	}
	return "", pod.Container{}
}

// starting is one start of a container.
type starting struct {
	cfg   *Config
	kind  pod.Kind
	start container.Start
}

func (s starting) run(ctx context.Context) (result, error) {
	cfg, p, spec := s.cfg, s.start.Pod, s.start.Container
	s.start.Mounts = func(expand func(string) (string, error)) (pod.Contribution, error) {
		devices, err := cfg.Volumes.Devices(p, spec)
		if err != nil {
			return pod.Contribution{}, err
		}
		mounts, err := cfg.Volumes.Mounts(ctx, p, spec, expand)
		return pod.Contribution{Mounts: mounts, Devices: devices}, err
	}
	cfg.Allocation.Starting(p, spec.Name, spec.Resources)
	extra, err := cfg.Resources.Contribution(ctx, p, spec)
	if err != nil {
		return s.notConfigured(ctx, err)
	}
	claimed, err := cfg.Claims.Contribution(p, spec)
	if err != nil {
		return s.notConfigured(ctx, err)
	}
	s.start.Extra = extra.With(claimed)
	id, failure := cfg.Runtime.StartContainer(ctx, s.start)
	if failure != nil {
		return result{outcome: startFailed{
			name:    spec.Name,
			attempt: s.start.Attempt,
			ran:     failure.Reason == pod.ReasonPostStartHook,
			at:      cfg.Now(),
			waiting: failure.Waiting,
		}}, fmt.Errorf("start container %s: %w", spec.Name, failure)
	}
	cfg.Allocation.SetActuated(p, spec.Name, spec.Resources)
	return result{
		effect: pod.Effect{
			Sandbox:   s.start.Sandbox.ID,
			Container: id,
			State:     pod.StateRunning,
		},
		outcome: started{
			name:    spec.Name,
			attempt: s.start.Attempt,
		},
	}, nil
}

// notConfigured is the result of a start that fails because the container's allocated resources, its claims or its
// target container are not available.
func (s starting) notConfigured(ctx context.Context, err error) (result, error) {
	const reason = pod.ReasonCreateContainerConfig
	text, ok := pod.ShownText(err)
	if !ok {
		text = err.Error() // for example of a plugin, and not of the container runtime
	}
	name := s.start.Container.Name
	if ctx.Err() == nil {
		s.cfg.Events.Pod(s.start.Pod, name, v1.EventTypeWarning, pod.EventFailed, "Error: "+text)
	}
	s.cfg.Runtime.NotStarted(s.kind, reason)
	return result{outcome: startFailed{
		name:    name,
		at:      s.cfg.Now(),
		waiting: pod.Waiting{Reason: reason, Message: text},
	}}, fmt.Errorf("start container %s: %w", name, err)
}

// started is the outcome of a start.
type started struct {
	name    string
	attempt int
}

func (s started) apply(w *worker) {
	w.restarts.ran[s.name] = s.attempt
	delete(w.waiting.containers, s.name)
}

// startFailed is the outcome of a start that failed.
type startFailed struct {
	name    string
	attempt int
	ran     bool // the container ran, and its hook failed
	at      time.Time
	waiting pod.Waiting
}

func (s startFailed) apply(w *worker) {
	if s.ran {
		w.restarts.ran[s.name] = s.attempt
	}
	w.waiting.failedAt = s.at
	w.waiting.containers[s.name] = s.waiting
}
