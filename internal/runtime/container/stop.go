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

// Stop is what the stop of one container goes by.
type Stop struct {
	Pod       *v1.Pod       // nil when only the runtime knows the pod
	Ref       pod.Ref       // names the pod then
	Spec      *v1.Container // nil when the specification does not have it (any more)
	Container pod.Container
	PodIPs    []string
	// Grace is the time left for the preStop hook and the container together.
	// Nothing or less leaves no time for a hook.
	Grace   time.Duration
	Message string // of the Killing event; empty for the usual one
	// Announced says that the Killing event is out and the preStop hook has run:
	// see [Runner.AnnounceStop].
	Announced bool
	// AtOnce has the container killed without being asked to stop.
	AtOnce bool
}

// AnnounceStop does what comes before a container is asked to stop: it tells of
// it, and runs the preStop hook. It is for containers whose turn to stop comes
// later in their pod's grace period.
func (r *Runner) AnnounceStop(ctx context.Context, s Stop) {
	s = r.restored(s)
	r.announce(ctx, s)
}

// announce records the Killing event and runs the preStop hook. For a container that a superseded stop has announced
// it only waits for the hook of that stop, if it still runs.
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
		// The container must go all the same.
		r.log(s.Pod, s.Container.Name).Warn("cannot read what was written on the container", "err", err)
	}
	return s
}

// StopContainer runs the container's preStop hook, asks it to stop, and returns
// when it has ended, by itself or at the end of the grace period. What the hook is
// where nobody knows the pod any more is read from the container's annotations.
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
	_, err := r.cfg.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: s.Container.ID, Timeout: timeout})
	stopped = err == nil
	return ignoreGone(err)
}

// stopTimeout is the rest of the grace period in whole seconds, rounded up. The
// least there is keeps a container from being killed before it heard that it
// should stop.
func stopTimeout(left time.Duration) int64 {
	return int64((max(left, pod.MinStopTimeout) + time.Second - 1) / time.Second)
}

func (r *Runner) log(p *v1.Pod, container string) *slog.Logger {
	return r.cfg.Log.With("pod", p.Namespace+"/"+p.Name, "uid", p.UID, "container", container)
}

// Removal is the removal of a container that does not run.
type Removal struct {
	Ref       pod.Ref
	Container pod.Container
	// KeepLogs leaves the logs and their flat name for as long as the pod is there.
	KeepLogs bool
}

// RemoveContainer removes a container, its logs unless they are kept, and the file that
// it left its last words in, which were read when it ended.
func (r *Runner) RemoveContainer(ctx context.Context, m Removal) error {
	ref, c := m.Ref, m.Container
	if !m.KeepLogs {
		if err := r.removeLogs(ref, c); err != nil {
			return fmt.Errorf("remove logs of container %s: %w", c.Name, err)
		}
	}
	_, err := inTurn(ctx, r.turns, removeContainer, removing, func() (*runtimeapi.RemoveContainerResponse, error) {
		return r.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
	})
	if err := ignoreGone(err); err != nil {
		return err
	}
	var mounted []string
	for _, m := range c.Mounts {
		mounted = append(mounted, m.HostPath)
	}
	r.stops.forget(c.ID)
	return r.removeTerminationLogs(ref.UID, c.Name, mounted)
}
