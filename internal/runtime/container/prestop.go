package container

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// ErrSuperseded is the cause with which the context of a stop is cancelled when another stop of the
// same container with a shorter grace period follows. The preStop hook of the first stop continues
// for the second.
var ErrSuperseded = errors.New("superseded by a stop with a shorter grace period")

func superseded(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrSuperseded) }

// hookOverrun is how long a preStop hook may run after the grace period. Its container has
// [pod.MinStopTimeout] then, and an exec hook ends with the container.
const hookOverrun = pod.MinStopTimeout + time.Second

// hookRun is the preStop hook of a container that is being stopped.
type hookRun struct {
	done   chan struct{} // closed when the hook has ended, or there is none
	cancel context.CancelFunc
	limit  *time.Timer // cancels the hook at its deadline
	sleeps bool        // a sleep hook, which does not end with its container
}

// stops holds the containers for which the Killing event was sent, by ID. An entry is deleted when
// the container is removed or the stop fails; the next stop then sends the event again.
type stops struct {
	mu    sync.Mutex
	hooks map[string]*hookRun
}

// begin returns the preStop hook of a container's stop. If this is the first stop of the container,
// it also returns a context in which the caller has to run the hook; otherwise the context is nil.
func (s *stops) begin(ctx context.Context, stop Stop) (*hookRun, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hook, ok := s.hooks[stop.Container.ID]; ok {
		return hook, nil
	}
	if s.hooks == nil {
		s.hooks = map[string]*hookRun{}
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	hook := &hookRun{
		done:   make(chan struct{}),
		cancel: cancel,
		limit:  time.AfterFunc(stop.Grace+hookOverrun, cancel),
		sleeps: stop.preStop() != nil && stop.preStop().Sleep != nil,
	}
	s.hooks[stop.Container.ID] = hook
	return hook, within
}

func (s *stops) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hooks, id)
}

// preStop returns the container's preStop hook, nil if there is none.
func (s Stop) preStop() *v1.LifecycleHandler {
	if s.Spec.Lifecycle == nil {
		return nil
	}
	return s.Spec.Lifecycle.PreStop
}

// end records that the hook has ended.
func (h *hookRun) end() {
	h.limit.Stop()
	h.cancel()
	close(h.done)
}

// runPreStop runs the hook. The container is stopped even if the hook fails.
func (r *Runner) runPreStop(within context.Context, s Stop, hook *hookRun) {
	defer hook.end()
	call := hookCall{pod: s.Pod, container: s.Spec, id: s.Container.ID, podIPs: s.PodIPs, handler: s.preStop()}
	err := panics.Try(r.cfg.Log, "containers", func() error { return r.runHook(within, call) })
	if err != nil && within.Err() == nil {
		r.log(s.Pod, s.Spec.Name).Warn("preStop hook failed", "err", err)
		r.cfg.Events.Pod(s.Pod, s.Spec.Name, v1.EventTypeWarning, pod.EventFailedPreStopHook, "PreStopHook failed")
	}
}

// awaitPreStop returns when the preStop hook has ended or the grace period is over. A hook that hangs
// is not cancelled: it may run until its container is killed.
func (r *Runner) awaitPreStop(ctx context.Context, s Stop, hook *hookRun) {
	select {
	case <-hook.done:
		return
	default:
	}
	hook.limit.Reset(s.Grace + hookOverrun) // the latest stop has the shortest grace period
	grace := time.NewTimer(s.Grace)
	defer grace.Stop()
	select {
	case <-hook.done:
		return
	case <-ctx.Done():
		if superseded(ctx) {
			return // the superseding stop waits for the hook
		}
	case <-grace.C:
		r.log(s.Pod, s.Spec.Name).Info("preStop hook not completed in grace period", "gracePeriod", s.Grace)
		if !hook.sleeps {
			return // the hook ends with its container
		}
	}
	hook.cancel()
	<-hook.done
}
