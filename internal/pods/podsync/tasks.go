package podsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
	"keelson/internal/pods/timeline"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
)

// task is one step under way.
type task struct {
	verb     podplan.Verb
	attempt  int
	why      string
	began    time.Time
	deadline time.Time
	cancel   context.CancelCauseFunc
}

// retry is the pause after a failed step.
type retry struct {
	at    time.Time
	pause time.Duration
	verb  string
	err   string    // of the last failure
	since time.Time // of the first in a row
	count int
}

const (
	firstPause = time.Second
	maxPause   = 10 * time.Second
)

// do starts the steps of a plan, each as a task of its own.
func (w *worker) do(ctx context.Context, tasks *sync.WaitGroup, plan podplan.Plan, have pod.Runtime) {
	for _, step := range plan.Steps {
		if step.Verb == podplan.FetchImage {
			continue // asked for already
		}
		if (step.Verb == podplan.RunSandbox || step.Verb == podplan.Start) && w.s.cfg.Leaving != nil && w.s.cfg.Leaving() {
			continue
		}
		if run := w.effect(step, have); run != nil {
			w.spawn(ctx, tasks, step.Target, task{verb: step.Verb, attempt: step.Attempt, why: step.Reason, deadline: step.Deadline}, run)
		}
	}
}

// spawn runs f as the task of its target. A task that is under way for the
// target is cancelled: it was a stop with a longer grace period. What became of
// the pod is seen even after that: the runtime may have done what was asked
// before it heard that nobody waits any more.
func (w *worker) spawn(life context.Context, tasks *sync.WaitGroup, target string, t task, f work) {
	var ctx context.Context
	ctx, t.cancel = context.WithCancelCause(life)
	t.began = w.s.cfg.Now()
	step := w.story.line.Begin(t.began, timeline.View{Verb: string(t.verb), Target: w.shownTarget(t.verb, target), Attempt: t.attempt, Why: t.why})
	mine, p := &t, w.spec // the specification is the turn's, not the task's
	w.mu.Lock()
	if old, ok := w.tasks[target]; ok {
		old.cancel(container.ErrSuperseded)
	}
	w.tasks[target] = mine
	w.mu.Unlock()
	tasks.Go(func() {
		defer t.cancel(nil)
		var effect pod.Effect
		err := w.contain(p, string(t.verb), func() (err error) {
			effect, err = f(timeline.With(ctx, step))
			return err
		})
		step.End(w.s.cfg.Now(), err)
		// The next turn must see what the task did before it sees it done.
		if actsOnRuntime(t.verb) {
			rerr := w.contain(p, "re-read pod", func() error { return w.see(life, effect, err) })
			switch {
			case rerr != nil && life.Err() == nil:
				w.readFailed(p, err == nil && t.verb == podplan.RunSandbox, rerr)
				if err == nil { // it may be done; to act on what was before would be to do it for ever
					err = fmt.Errorf("re-read pod: %w", rerr)
				} else {
					w.log.Log(life, severity(rerr), "cannot re-read pod", "after", t.verb, "err", rerr)
				}
			case rerr == nil && err == nil && !w.shows(effect):
				err = errNoEffect
			}
		}
		w.settle(target, mine, err)
	})
}

// shownTarget is what a step is for, as people call it: a container's name, and
// nothing where the verb says it all.
func (w *worker) shownTarget(verb podplan.Verb, target string) string {
	switch verb {
	case podplan.Start:
		return target
	case podplan.Stop, podplan.Remove:
		have, _ := w.s.cfg.Observed.Get(w.uid)
		c, _ := have.ByID(target)
		return c.Name
	}
	return ""
}

// readFailed tells that what became of the pod, or of its new sandbox, cannot be
// read: nothing goes on before it can.
func (w *worker) readFailed(p *v1.Pod, sandbox bool, err error) {
	reason, message := pod.EventFailedSync, "error determining status: "
	if sandbox {
		reason, message = pod.EventFailedSandboxStatus, "Unable to get pod sandbox status: "
	}
	if p != nil && !cri.IsUnavailable(err) {
		w.s.cfg.Events.Pod(p, "", v1.EventTypeWarning, reason, message+cri.Text(err))
	}
}

// work is what a task does. It tells its effect on the runtime, unless it fails:
// then anything may be.
type work func(context.Context) (pod.Effect, error)

// see has the effect of a task seen.
func (w *worker) see(ctx context.Context, effect pod.Effect, failed error) error {
	if failed == nil {
		return w.s.cfg.Observed.Confirm(ctx, w.uid, effect)
	}
	_, err := w.s.cfg.Observed.Refresh(ctx, w.uid)
	return err
}

// errNoEffect is how a task fails when the runtime says that it has done what it
// was asked for and shows that it has not: to ask once more at once would be to
// ask for ever.
var errNoEffect = errors.New("the runtime says that it is done, and shows no effect")

// shows reports whether what is known of the pod shows an effect. A sandbox may
// still be without its address.
func (w *worker) shows(effect pod.Effect) bool {
	have, _ := w.s.cfg.Observed.Get(w.uid)
	if effect.Container == "" && effect.State == pod.StateRunning {
		return slices.ContainsFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.ID == effect.Sandbox })
	}
	return effect.ShownBy(have)
}

func actsOnRuntime(v podplan.Verb) bool {
	switch v {
	case confirmResources, noteVerdict, reduceCgroup, removeCgroup, removeDirs, podplan.AnnounceStop, resizePod:
		return false
	}
	return true
}

// callOffStarts cancels what would bring more of the pod to life: what waits for its
// turn, hooks, plugins. A call to the runtime that has begun ends by itself or at its
// timeout, and the pod waits for it: what the runtime makes must be seen to be removed.
func (w *worker) callOffStarts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.going == nil {
		return
	}
	for _, t := range w.tasks {
		if t.verb == podplan.RunSandbox || t.verb == podplan.Start || t.verb == confirmResources {
			t.cancel(nil)
		}
	}
}

// settle records how a task ended and wakes the worker.
func (w *worker) settle(target string, t *task, err error) {
	kept := false // what should be removed, for the first time
	w.mu.Lock()
	if w.tasks[target] == t {
		delete(w.tasks, target)
		if err == nil {
			delete(w.retries, target)
		} else {
			r := w.retries[target]
			r.pause = min(max(2*r.pause, firstPause), maxPause)
			r.at = w.s.cfg.Now().Add(r.pause)
			r.verb, r.err, r.count = string(t.verb), cri.Cause(err).Error(), r.count+1
			if r.since.IsZero() {
				r.since = t.began
			}
			w.retries[target] = r
			if !cri.IsCanceled(err) {
				level := severity(err)
				if errors.Is(err, errNoEffect) && r.count == 1 {
					level = slog.LevelDebug // a busy runtime is a moment behind itself
				}
				w.log.Log(context.Background(), level, "cannot "+string(t.verb), "target", target, "err", err, "again_in", r.pause)
				kept = r.count == 1 && (t.verb == podplan.Remove || t.verb == podplan.RemoveSandbox) && !cri.IsUnavailable(err)
			}
		}
	}
	w.mu.Unlock()
	if kept {
		w.s.cfg.Events.Node(v1.EventTypeWarning, pod.EventContainerGCFailed, err.Error())
	}
	w.poke()
}

// severity keeps quiet about a runtime that is away, which is said once for the
// node and not once for each pod, and about one that has yet to come to an end
// with what an agent before this one asked for.
func severity(err error) slog.Level {
	if cri.IsUnavailable(err) || cri.IsNameTaken(err) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// dropRetries forgets failures of what need not be tried again: it has turned out
// to be done.
func (w *worker) dropRetries(now time.Time, plan podplan.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for target, r := range w.retries {
		_, busy := w.tasks[target]
		wanted := slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool { return s.Target == target })
		if actsOnRuntime(podplan.Verb(r.verb)) && !busy && !wanted && !r.at.After(now) {
			delete(w.retries, target)
		}
	}
}

// effect is the work of one step.
func (w *worker) effect(step podplan.Step, have pod.Runtime) work {
	cfg, spec, id := &w.s.cfg, w.spec, step.Target
	w.log.Debug("step", "verb", step.Verb, "target", step.Target, "attempt", step.Attempt, "why", step.Reason)
	switch step.Verb {
	case podplan.RunSandbox:
		if len(have.Sandboxes) > 0 || len(have.Containers) > 0 {
			cfg.Events.Pod(spec, "", v1.EventTypeNormal, pod.EventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
		}
		return func(ctx context.Context) (pod.Effect, error) {
			id, err := w.runSandbox(ctx, spec, step.Attempt)
			return pod.Effect{Sandbox: id, State: pod.StateRunning}, err
		}
	case podplan.Start:
		return w.start(step, have)
	case podplan.Stop, podplan.AnnounceStop:
		return w.stop(step, have)
	case podplan.StopSandbox:
		return func(ctx context.Context) (pod.Effect, error) {
			err := cfg.Containers.StopSandbox(ctx, id)
			w.killFailed(ctx, spec, "KillPodSandbox", string(w.uid), err)
			w.sandboxStopped(id, err)
			return pod.Effect{Sandbox: id, State: pod.StateExited}, err
		}
	case podplan.RemoveSandbox:
		return func(ctx context.Context) (pod.Effect, error) {
			// One that is not ready may have died by itself: only a stop gives its
			// network back.
			err := cfg.Containers.StopSandbox(ctx, id)
			w.sandboxStopped(id, err)
			if err != nil {
				return pod.Effect{}, err
			}
			return pod.Effect{Sandbox: id, Gone: true}, cfg.Containers.RemoveSandbox(ctx, id)
		}
	case podplan.Remove:
		c, ok := have.ByID(id)
		if !ok {
			return nil
		}
		ref, anew := w.ref(have), maps.Clone(w.renewed) // the specification is the turn's, not the task's
		return func(ctx context.Context) (pod.Effect, error) {
			if step.Cause == podplan.CauseRestartAll {
				w.beginAnew(anew)
			}
			if c.State == pod.StateCreated {
				if begun, err := w.begun(ctx, c); err != nil || begun.Container != "" {
					return begun, err
				}
			}
			ctx, end := w.s.traceCollect(ctx)
			defer end()
			err := cfg.Containers.RemoveContainer(ctx, container.Removal{
				Ref:       ref,
				Container: c,
				KeepLogs:  step.Cause == podplan.CauseRestartAll,
			})
			return pod.Effect{Sandbox: c.SandboxID, Container: c.ID, Gone: true}, err
		}
	}
	return nil
}

// begun reads once more whether a container that was seen made has not begun after all:
// the answer to its start may be lost together with every event, or the start was on its
// way for an agent before this one. To remove it would be to end what it does, or to
// forget how it ended, and to have it done twice. It tells what the container has come
// to, and nothing if it has yet to begin, or is gone.
func (w *worker) begun(ctx context.Context, c pod.Container) (pod.Effect, error) {
	have, err := w.s.cfg.Observed.Refresh(ctx, w.uid)
	if err != nil {
		return pod.Effect{}, fmt.Errorf("see whether container %s has begun: %w", c.Name, err)
	}
	if now, ok := have.ByID(c.ID); ok && now.State != pod.StateCreated {
		return pod.Effect{Sandbox: c.SandboxID, Container: c.ID, State: now.State}, nil
	}
	return pod.Effect{}, nil
}

// ref names the pod, by its specification or by what the runtime says.
func (w *worker) ref(have pod.Runtime) pod.Ref {
	if w.spec != nil {
		return pod.RefOf(w.spec)
	}
	return have.Ref
}

func (w *worker) runSandbox(ctx context.Context, spec *v1.Pod, attempt int) (id string, err error) {
	cfg := &w.s.cfg
	fail := func(reason, message string, err error) (string, error) {
		if !cri.IsCanceled(err) && (severity(err) == slog.LevelWarn || cri.IsNameTaken(err) && w.triedLong(podplan.SandboxTarget)) {
			cfg.Events.Pod(spec, "", v1.EventTypeWarning, reason, message+": "+cri.Text(err))
		}
		return "", err
	}
	if err := cfg.Dirs.Make(spec.UID); err != nil {
		return fail(pod.EventFailed, "error making pod data directories", err)
	}
	ensure := cfg.Cgroups.EnsurePod
	if attempt == 0 { // nothing was there before
		ensure = cfg.Cgroups.MakePod
	}
	if err := ensure(ctx, spec); err != nil {
		return fail(pod.EventFailedCreateContainer, "unable to ensure pod container exists", err)
	}
	if attempt == 0 { // it has what spec names
		w.mu.Lock()
		w.sized = spec
		w.mu.Unlock()
	}
	if id, err = cfg.Containers.RunSandbox(ctx, spec, uint32(attempt)); err != nil {
		return fail(pod.EventFailedCreateSandbox, "Failed to create pod sandbox", err)
	}
	return id, nil
}

// triedLong reports whether a step has failed so often that what looked like a
// passing trouble is one to tell of.
func (w *worker) triedLong(target string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retries[target].pause == maxPause
}

// start starts a container. A restart counts against its back-off from now on.
func (w *worker) start(step podplan.Step, have pod.Runtime) work {
	name, p := step.Target, w.spec
	kind, spec, ok := pod.Find(p, name)
	sandbox, ready := have.ReadySandbox()
	if !ok || !ready {
		return nil
	}
	target, seen := ephemeralTarget(p, name, have)
	start := container.Start{Pod: p, Kind: kind, Container: spec, Sandbox: sandbox, PodIPs: w.podIPs, Attempt: step.Attempt,
		ImageRef: w.images[name].result.Ref, TargetID: seen.ID}
	last, again := podplan.Instance(p, have, name)
	w.countRestart(p, spec, last, again)
	return func(ctx context.Context) (pod.Effect, error) {
		if target != seen.Name { // it is started once: without its target it would be of no use for ever
			return pod.Effect{}, w.notConfigured(ctx, p, kind, name, fmt.Errorf("unable to find target container %s", target))
		}
		start.Mounts = func(expand func(string) (string, error)) (pod.Contribution, error) {
			devices, err := w.s.cfg.Volumes.Devices(p, spec)
			if err != nil {
				return pod.Contribution{}, err
			}
			mounts, err := w.s.cfg.Volumes.Mounts(ctx, p, spec, expand)
			return pod.Contribution{Mounts: mounts, Devices: devices}, err
		}
		w.s.cfg.Allocation.Starting(p, name, spec.Resources)
		extra, err := w.s.cfg.Resources.Contribution(ctx, p, spec)
		if err != nil {
			return pod.Effect{}, w.notConfigured(ctx, p, kind, name, err)
		}
		claimed, err := w.s.cfg.Claims.Contribution(p, spec)
		if err != nil {
			return pod.Effect{}, w.notConfigured(ctx, p, kind, name, err)
		}
		start.Extra = extra.With(claimed)
		id, failure := w.s.cfg.Containers.StartContainer(ctx, start)
		if failure == nil { // without mu: who keeps the account may be ending this very pod, and wait for it
			w.s.cfg.Allocation.Enforced(p, name, spec.Resources)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if failure == nil || failure.Reason == pod.ReasonPostStartHook {
			w.ran[name] = step.Attempt
		}
		if failure == nil {
			delete(w.waiting, name)
			return pod.Effect{Sandbox: sandbox.ID, Container: id, State: pod.StateRunning}, nil
		}
		w.startFailed = w.s.cfg.Now()
		w.waiting[name] = status.Waiting{Reason: failure.Reason, Message: failure.Message}
		return pod.Effect{}, fmt.Errorf("start container %s: %w", name, failure)
	}
}

// notConfigured shows a container that cannot be started for want of what it was
// promised, or of what it is to look into.
func (w *worker) notConfigured(ctx context.Context, p *v1.Pod, kind pod.Kind, name string, err error) error {
	const reason = pod.ReasonCreateContainerConfig
	text, ok := pod.ShownText(err)
	if !ok {
		text = err.Error() // of a plugin for example, and not of the container runtime
	}
	if ctx.Err() == nil {
		w.s.cfg.Events.Pod(p, name, v1.EventTypeWarning, pod.EventFailed, "Error: "+text)
	}
	w.s.cfg.Containers.NotStarted(kind, reason)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startFailed = w.s.cfg.Now()
	w.waiting[name] = status.Waiting{Reason: reason, Message: text}
	return fmt.Errorf("start container %s: %w", name, err)
}

// ephemeralTarget is the container whose processes an ephemeral one may see, by name and
// as it was seen; empty for none.
func ephemeralTarget(p *v1.Pod, name string, have pod.Runtime) (target string, seen pod.Container) {
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name && e.TargetContainerName != "" {
			seen, _ = have.Latest(e.TargetContainerName)
			return e.TargetContainerName, seen
		}
	}
	return "", pod.Container{}
}

func (w *worker) stop(step podplan.Step, have pod.Runtime) work {
	c, ok := have.ByID(step.Target)
	if !ok {
		return nil
	}
	w.mu.Lock()
	announced, atOnce := w.announced[c.ID], w.atOnce
	w.mu.Unlock()
	stop := container.Stop{Pod: w.spec, Ref: w.ref(have), Container: c, PodIPs: w.podIPs, Grace: max(step.Deadline.Sub(w.s.cfg.Now()), 0),
		Announced: announced, AtOnce: atOnce}
	if w.spec != nil {
		if _, spec, ok := pod.Find(w.spec, c.Name); ok {
			stop.Spec = spec
		}
	}
	recall := recalls(step.Cause, w.spec, c.Name)
	stop.Message = killing(step.Cause, w.spec, c.Name)
	if step.Verb == podplan.AnnounceStop {
		return func(ctx context.Context) (pod.Effect, error) {
			w.s.cfg.Containers.AnnounceStop(ctx, stop)
			if ctx.Err() == nil {
				w.mu.Lock()
				w.announced[c.ID] = true
				w.mu.Unlock()
			}
			return pod.Effect{}, ctx.Err()
		}
	}
	p, replaced := w.spec, replaces(step.Cause, w.spec, c.Name)
	return func(ctx context.Context) (pod.Effect, error) {
		if recall {
			w.recall(c.ID)
		}
		if replaced {
			w.replace(c.ID, endedBefore(have, c.Name))
		}
		err := w.s.cfg.Containers.StopContainer(ctx, stop)
		if err != nil && ctx.Err() == nil {
			w.endsByItself(c.ID)
		}
		w.killFailed(ctx, p, "KillContainer", c.Name, err)
		return pod.Effect{Sandbox: c.SandboxID, Container: c.ID, State: pod.StateExited}, err
	}
}

// killFailed tells what keeps a pod from ending. The words are those that
// readers of events know.
func (w *worker) killFailed(ctx context.Context, p *v1.Pod, what, target string, err error) {
	if err == nil || p == nil || ctx.Err() != nil || cri.IsUnavailable(err) {
		return
	}
	w.mu.Lock()
	going := w.going != nil
	w.mu.Unlock()
	if going {
		w.s.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedKillPod,
			fmt.Sprintf("error killing pod: failed to %q for %q with %sError: %q", what, target, what, cri.Cause(err)))
	}
}

// nextRetry is the earliest end of a pause that is still to come.
func (w *worker) nextRetry(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var next time.Time
	for _, r := range w.retries {
		if r.at.After(now) {
			next = earlier(next, r.at)
		}
	}
	return next
}
