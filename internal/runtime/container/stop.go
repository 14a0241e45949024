package container

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// Stop is the input for the stop of one container.
type Stop struct {
	Pod       *v1.Pod       // nil if only the runtime knows the pod
	Ref       pod.Ref       // identifies the pod if Pod is nil
	Spec      *v1.Container // nil if the specification does not have the container (any more)
	Container pod.Container
	PodIPs    []string
	// Grace is the remaining time for the preStop hook and the container together. If it is not
	// positive, no hook is run.
	Grace   time.Duration
	Message string // of the Killing event; empty for the default
	// Announced is set if the Killing event was sent and the preStop hook has run, see
	// [Runner.AnnounceStop].
	Announced bool
	// AtOnce has the container killed with SIGKILL, without a stop signal.
	AtOnce bool
}

// AnnounceStop does what precedes the stop signal: it records the Killing event and runs the
// preStop hook. It is for containers that are stopped later in the grace period of their pod.
func (r *Runner) AnnounceStop(ctx context.Context, s Stop) {
	s = r.restored(s)
	r.announce(ctx, s)
}

// announce records the Killing event and runs the preStop hook. If a superseded stop of the
// container has already done so, it only waits for a hook that is still running.
func (r *Runner) announce(ctx context.Context, s Stop) {
	hook, within := r.stops.begin(ctx, s)
	if within != nil {
		text := s.Message
		if text == "" {
			text = "Stopping container " + s.Container.Name
		}
		r.cfg.Events.Pod(s.Pod, s.Container.Name, v1.EventTypeNormal, pod.EventKilling, text)
		if s.preStop() != nil && s.Grace > 0 {
			go r.runPreStop(within, s, hook)
		} else {
			hook.end()
		}
	}
	r.awaitPreStop(ctx, s, hook)
}

func (r *Runner) restored(s Stop) Stop {
	s, err := restore(s)
	if err != nil {
		// The container is stopped nonetheless.
		r.log(s.Pod, s.Container.Name).Warn("failed to read annotations of container", "err", err)
	}
	return s
}

// StopContainer runs the container's preStop hook, sends the stop signal, and returns when the
// container has exited, by itself or killed at the end of the grace period. If the specification is
// not available, the hook is read from the container's annotations.
func (r *Runner) StopContainer(ctx context.Context, s Stop) error {
	s = r.restored(s)
	stopped := false
	defer func() {
		if !stopped && !superseded(ctx) {
			r.stops.forget(s.Container.ID)
		}
	}()
	left := s.Grace
	if !s.Announced {
		begin := r.cfg.Now()
		r.announce(ctx, s)
		left -= r.cfg.Now().Sub(begin)
	}
	timeout := stopTimeout(left)
	if s.AtOnce {
		timeout = 0
	}
	_, err := r.cfg.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: s.Container.ID,
		Timeout:     timeout,
	})
	stopped = err == nil
	return ignoreNotFound(err)
}

// stopTimeout returns the rest of the grace period in whole seconds, rounded up. The minimum keeps
// a container from being killed before it can handle the signal.
func stopTimeout(left time.Duration) int64 {
	return int64((max(left, pod.MinStopTimeout) + time.Second - 1) / time.Second)
}

func (r *Runner) log(p *v1.Pod, container string) *slog.Logger {
	return r.cfg.Log.With("pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "containerName", container)
}

// Removal is the input for the removal of an exited container.
type Removal struct {
	Ref       pod.Ref
	Container pod.Container
	// KeepLogs keeps the logs and their legacy symlink until the pod is removed.
	KeepLogs bool
}

// RemoveContainer removes a container, its logs unless they are kept, and its termination log,
// whose content was read when the container exited.
func (r *Runner) RemoveContainer(ctx context.Context, m Removal) error {
	ref, c := m.Ref, m.Container
	if !m.KeepLogs {
		if err := r.removeLogs(ref, c); err != nil {
			return fmt.Errorf("remove logs of container %s: %w", c.Name, err)
		}
	}
	_, err := inQueue(ctx, r.queue, removeContainer, removeRank, func() (*runtimeapi.RemoveContainerResponse, error) {
		return r.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
	})
	if err := ignoreNotFound(err); err != nil {
		return err
	}
	var mounted []string
	for _, m := range c.Mounts {
		mounted = append(mounted, m.HostPath)
	}
	r.stops.forget(c.ID)
	return r.removeTerminationLogs(ref.UID, c.Name, mounted)
}
