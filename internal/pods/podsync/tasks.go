package podsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/timeline"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
)

// work is what a task does. It runs in parallel with turns and does not access the worker: it gets what it needs when
// it is created, and returns a result.
type work func(context.Context) (result, error)

// result is the result of a task.
type result struct {
	effect  pod.Effect // expected on the runtime; if the task failed, its effect is not known
	outcome outcome    // nil: nothing but its end
}

// outcome is what a task found out or did, also one that failed. The worker applies it in its own goroutine.
type outcome interface{ apply(*worker) }

// task is one step under way.
type task struct {
	verb     podplan.Verb
	attempt  int
	began    time.Time
	deadline time.Time
	cancel   context.CancelCauseFunc
}

// finished is a task that has ended.
type finished struct {
	key     podplan.Key
	task    *task
	outcome outcome
	err     error
	at      time.Time // when it ended
}

// tasks are the tasks of a pod that are under way, and those that are repeated after a failure.
type tasks struct {
	group   sync.WaitGroup
	running map[podplan.Key]*task
	retries map[podplan.Key]retry
}

func newTasks() *tasks {
	return &tasks{
		running: map[podplan.Key]*task{},
		retries: map[podplan.Key]retry{},
	}
}

// retry is the pause after a failed step.
type retry struct {
	at      time.Time
	pause   time.Duration
	backoff wait.Backoff
	verb    podplan.Verb
	err     string    // of the last failure
	since   time.Time // of the first in a row
	count   int
}

const (
	firstPause = time.Second
	maxPause   = 10 * time.Second
)

// busy are the tasks that have not ended yet.
func (t *tasks) busy() map[podplan.Key]podplan.Task {
	busy := make(map[podplan.Key]podplan.Task, len(t.running))
	for key, one := range t.running {
		busy[key] = podplan.Task{
			Verb:     one.verb,
			Deadline: one.deadline,
		}
	}
	return busy
}

// retryAt is until when failed steps wait. A failed stop is dropped if the container has stopped since.
func (t *tasks) retryAt(have pod.Runtime) map[podplan.Key]time.Time {
	at := make(map[podplan.Key]time.Time, len(t.retries))
	for key, r := range t.retries {
		c, ok := have.ByID(key.Target.Name)
		if ok && key.Target.Kind == podplan.KindInstance && c.State == pod.StateExited && r.verb == podplan.Stop {
			delete(t.retries, key)
			continue
		}
		at[key] = r.at
	}
	return at
}

// failures is how often in a row a container has failed to start.
func (t *tasks) failures(name string) int {
	return t.retries[podplan.KeyOf(podplan.Start, podplan.Container(name))].count
}

// nextRetry is the earliest end of a pause that is still to come.
func (t *tasks) nextRetry(now time.Time) time.Time {
	var next time.Time
	for _, r := range t.retries {
		if r.at.After(now) {
			next = clock.Earlier(next, r.at)
		}
	}
	return next
}

// dropRetries drops failed steps on the runtime that are due and not in the plan any more: they are not needed. The
// failed start of a container that is to be started stays, because it may wait for another one, or for its image.
func (t *tasks) dropRetries(now time.Time, plan podplan.Plan) {
	for key, r := range t.retries {
		_, busy := t.running[key]
		wanted := slices.ContainsFunc(plan.Steps, func(s podplan.Step) bool { return s.Key() == key }) ||
			r.verb == podplan.Start && slices.Contains(plan.ToStart, key.Target.Name)
		if r.verb.OnRuntime() && !busy && !wanted && !r.at.After(now) {
			delete(t.retries, key)
		}
	}
}

// startTogether retries all failed starts of containers as soon as the first of them is due, in the order of the
// specification: the containers may lack the same object. Starts that are due already are not delayed.
func (t *tasks) startTogether(now time.Time) {
	var first time.Time
	pending := func(r retry) bool { return r.verb == podplan.Start && r.at.After(now) }
	for _, r := range t.retries {
		if pending(r) {
			first = clock.Earlier(first, r.at)
		}
	}
	for key, r := range t.retries {
		if pending(r) {
			r.at = first
			t.retries[key] = r
		}
	}
}

// cancelStarts cancels tasks that would start more of the pod: those that wait for their turn, for hooks or for
// plugins. A call to the runtime that has begun ends by itself or at its timeout, and the pod waits for that: what the
// runtime creates must be observed before it can be removed.
func (t *tasks) cancelStarts() {
	for _, one := range t.running {
		switch one.verb {
		case podplan.RunSandbox, podplan.Start, podplan.ConfirmResources:
			one.cancel(nil)
		}
	}
}

// spawn runs f as the task of a step. A task that is under way for the same key is cancelled: it was a stop with a
// longer grace period. The pod is read again even after a cancellation: the runtime may have executed the request
// before.
func (do performer) spawn(life context.Context, step podplan.Step, f work) {
	ctx, cancel := context.WithCancelCause(life)
	mine := &task{
		verb:     step.Verb,
		attempt:  step.Attempt,
		began:    do.w.s.cfg.Now(),
		deadline: step.Deadline,
		cancel:   cancel,
	}
	line := do.w.history.steps.Begin(mine.began, timeline.View{
		Verb:    string(step.Verb),
		Target:  shownTarget(step, do.in.Have),
		Attempt: step.Attempt,
		Why:     step.Reason,
	})
	key := step.Key()
	if old, ok := do.w.tasks.running[key]; ok {
		old.cancel(container.ErrSuperseded)
	}
	do.w.tasks.running[key] = mine
	s, mail := do.w.s, do.w.mail
	r := runner{
		s:   s,
		uid: do.w.uid,
		pod: do.w.source.spec,
		log: do.w.log,
	}
	do.w.tasks.group.Go(func() {
		defer cancel(nil)
		outcome, err := r.run(timeline.With(ctx, line), life, mine, line, f)
		mail.finished(finished{
			key:     key,
			task:    mine,
			outcome: outcome,
			err:     err,
			at:      s.cfg.Now(),
		})
	})
}

// runner runs one task.
type runner struct {
	s   *Syncer
	uid types.UID
	pod *v1.Pod // nil if only the runtime has the pod
	log *slog.Logger
}

// run runs a task until its effect on the runtime is observed. The next turn must see the effect of the task before it
// sees that the task has ended.
func (r runner) run(ctx, life context.Context, t *task, line *timeline.Step, f work) (outcome, error) {
	var res result
	err := contain(&r.s.cfg, r.log, r.pod, string(t.verb), func() (err error) {
		res, err = f(ctx)
		return err
	})
	line.End(r.s.cfg.Now(), err)
	if !t.verb.OnRuntime() {
		return res.outcome, err
	}
	unread := contain(&r.s.cfg, r.log, r.pod, "re-read pod", func() error { return r.see(life, res.effect, err) })
	switch {
	case unread != nil && life.Err() == nil:
		r.readFailed(err == nil && t.verb == podplan.RunSandbox, unread)
		if err == nil { // it may be done; with the old state it might be repeated for ever
			return res.outcome, fmt.Errorf("re-read pod: %w", unread)
		}
		r.log.Log(life, severity(unread), "failed to re-read pod", "after", t.verb, "err", unread)
	case unread == nil && err == nil && !r.shows(res.effect):
		err = errNoEffect
	}
	return res.outcome, err
}

// see returns when the effect of a task is observed.
func (r runner) see(ctx context.Context, effect pod.Effect, failed error) error {
	if failed == nil {
		return r.s.cfg.Runtime.Confirm(ctx, r.uid, effect)
	}
	_, err := r.s.cfg.Runtime.Refresh(ctx, r.uid)
	return err
}

// readFailed records in an event that the state of the pod, or of its new sandbox, cannot be read. The sync does not
// continue until it can.
func (r runner) readFailed(sandbox bool, err error) {
	reason, message := pod.EventFailedSync, "error determining status: "
	if sandbox {
		reason, message = pod.EventFailedSandboxStatus, "Unable to get pod sandbox status: "
	}
	if r.pod != nil && !cri.IsUnavailable(err) {
		r.s.cfg.Events.Pod(r.pod, "", v1.EventTypeWarning, reason, message+cri.Text(err))
	}
}

// errNoEffect is the error of a task for which the runtime reports success and shows no effect. It makes the next
// attempt wait, because attempts may be repeated for ever.
var errNoEffect = errors.New("the runtime reports success, and shows no effect")

// shows reports whether the observed state of the pod shows an effect. A sandbox may still have no address.
func (r runner) shows(effect pod.Effect) bool {
	have, _ := r.s.cfg.Observed.Get(r.uid)
	if effect.Container == "" && effect.State == pod.StateRunning {
		return slices.ContainsFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.ID == effect.Sandbox })
	}
	return effect.ShownBy(have)
}

// settle applies the outcome of a task that has ended, and sets when it is retried if it has failed.
func (w *worker) settle(f finished) {
	if f.outcome != nil {
		f.outcome.apply(w)
	}
	if w.tasks.running[f.key] != f.task {
		return // another one has taken its place
	}
	delete(w.tasks.running, f.key)
	if f.err == nil {
		delete(w.tasks.retries, f.key)
		return
	}
	r := w.tasks.retries[f.key]
	if r.count == 0 {
		r.backoff = clock.Backoff(firstPause, maxPause)
	}
	r.pause = r.backoff.Step()
	r.at = f.at.Add(r.pause)
	r.verb, r.err, r.count = f.task.verb, cri.Cause(f.err).Error(), r.count+1
	if r.since.IsZero() {
		r.since = f.task.began
	}
	w.tasks.retries[f.key] = r
	w.tasks.startTogether(f.at)
	if !cri.IsCanceled(f.err) {
		w.reportFailure(f, w.tasks.retries[f.key])
	}
}

// reportFailure logs the failure of a step. The first of several failed removals is also recorded in an event of the
// node.
func (w *worker) reportFailure(f finished, r retry) {
	level := severity(f.err)
	if errors.Is(f.err, errNoEffect) && r.count == 1 {
		level = slog.LevelDebug // a busy runtime shows some effects late
	}
	w.log.Log(context.Background(), level, "pod step failed",
		"step", f.task.verb, "target", f.key.Target.Name, "err", f.err, "retryIn", r.at.Sub(f.at))
	removal := f.task.verb == podplan.Remove || f.task.verb == podplan.RemoveSandbox
	if removal && r.count == 1 && !cri.IsUnavailable(f.err) {
		w.s.cfg.Events.Node(v1.EventTypeWarning, pod.EventContainerGCFailed, f.err.Error())
	}
}

// severity is low if the runtime is unavailable, which is logged once for the node and not once for each pod, and if a
// name is taken because the runtime has not completed a request of an earlier agent yet.
func severity(err error) slog.Level {
	if cri.IsUnavailable(err) || cri.IsNameTaken(err) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// shownTarget returns the target of a step for the explanation of the pod: a container's name, or nothing if the verb
// is enough.
func shownTarget(step podplan.Step, have pod.Runtime) string {
	switch step.Verb {
	case podplan.Start:
		return step.Target.Name
	case podplan.Stop, podplan.Remove:
		c, _ := have.ByID(step.Target.Name)
		return c.Name
	}
	return ""
}
