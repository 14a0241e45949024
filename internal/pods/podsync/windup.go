package podsync

import (
	"context"
	"sync"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Tasks that are no steps of the plan: they do not concern the runtime. All but the
// first are of a pod's end.
const (
	confirmResources podplan.Verb = "ask for resources"
	noteVerdict      podplan.Verb = "record eviction"

	reduceCgroup podplan.Verb = "reduce cgroup"
	removeCgroup podplan.Verb = "remove cgroup"
	removeDirs   podplan.Verb = "remove directories"
)

// windUp releases what a stopped pod still holds on the node, in an order: its
// claims, without which it is not shown as ended, its place among the pods that take
// up the node, its volumes, then the objects they were made from, then its cgroup. It
// reports whether all of it is released.
func (w *worker) windUp(ctx context.Context, tasks *sync.WaitGroup, have pod.Runtime) bool {
	cfg := &w.s.cfg
	ref := w.ref(have)
	ref.UID = w.uid
	cfg.Claims.Release(ref)
	if done, _ := cfg.Claims.Released(w.uid); !done {
		return false // why not is said by whoever takes them back
	}
	// The turn shows it as ended after this: who is sent in its place finds room, however
	// long its volumes take.
	cfg.Resources.Release(w.uid) // before there is room for others, who may want it
	cfg.Allocation.Vacate(w.uid)
	cfg.Volumes.Release(ref)
	if done, err := cfg.Volumes.Released(w.uid); !done {
		if err != nil && err.Error() != w.volumeErr {
			w.volumeErr = err.Error()
			w.log.Warn("cannot release volumes", "err", err)
		}
		if err != nil || w.adopted {
			w.reduce(ctx, tasks)
		}
		return false
	}
	cfg.Objects.Unregister(w.uid)
	w.mu.Lock()
	gone := w.cgroupGone
	w.mu.Unlock()
	if !gone {
		w.once(ctx, tasks, removeCgroup, func(ctx context.Context) error {
			if err := cfg.Cgroups.RemovePod(ctx, w.uid); err != nil {
				return err
			}
			w.mu.Lock()
			w.cgroupGone = true
			w.mu.Unlock()
			return nil
		})
	}
	return gone
}

// reduce leaves a pod whose volumes stay, maybe for long, with the least CPU.
func (w *worker) reduce(ctx context.Context, tasks *sync.WaitGroup) {
	w.mu.Lock()
	done := w.reduced
	w.mu.Unlock()
	if done {
		return
	}
	w.once(ctx, tasks, reduceCgroup, func(context.Context) error {
		if err := w.s.cfg.Cgroups.ReducePod(w.uid); err != nil {
			return err
		}
		w.mu.Lock()
		w.reduced = true
		w.mu.Unlock()
		return nil
	})
}

// leaveNothing removes the directories of a pod that no source knows and of
// which the runtime holds nothing any more. It reports whether nothing is left.
func (w *worker) leaveNothing(ctx context.Context, tasks *sync.WaitGroup, have pod.Runtime) bool {
	if w.known || !have.Empty() {
		return false
	}
	ref := w.ref(have)
	ref.UID = w.uid
	w.mu.Lock()
	gone := w.dirsGone
	_, noting := w.tasks[string(noteVerdict)] // it makes the directory
	w.mu.Unlock()
	if noting {
		return false
	}
	if !gone {
		w.once(ctx, tasks, removeDirs, func(ctx context.Context) error {
			if err := w.s.cfg.Dirs.Remove(ctx, ref); err != nil {
				return err
			}
			w.mu.Lock()
			w.dirsGone = true
			w.mu.Unlock()
			return nil
		})
	}
	return gone
}

// once starts a task unless it is under way or waits after a failure.
func (w *worker) once(ctx context.Context, tasks *sync.WaitGroup, verb podplan.Verb, f func(context.Context) error) {
	w.mu.Lock()
	_, busy := w.tasks[string(verb)]
	waits := w.retries[string(verb)].at.After(w.s.cfg.Now())
	w.mu.Unlock()
	if !busy && !waits {
		w.spawn(ctx, tasks, string(verb), task{verb: verb}, func(ctx context.Context) (pod.Effect, error) { return pod.Effect{}, f(ctx) })
	}
}
