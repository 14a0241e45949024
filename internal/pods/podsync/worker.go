package podsync

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/clock"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// worker is the actor of one pod. Its goroutine owns all of its fields but the first four, which never
// change or are safe for concurrent use. Others reach it by its mailbox; its tasks get what they need when they are
// started, and return an outcome.
type worker struct {
	s    *Syncer
	uid  types.UID
	mail *mailbox
	ends *ends

	history     *history
	log         *slog.Logger
	source      source
	admission   admission
	termination termination
	tasks       *tasks
	images      images
	restarts    restarts
	sandboxes   sandboxes
	waiting     waiting
	holdings    holdings
	shown       shown
	times       times
	hold        hold
	plan        podplan.Plan // of the last turn
	place       place
}

// source is what the sources have of the pod.
type source struct {
	spec    *v1.Pod // with its allocated resources; kept when the source removes the pod
	desired *v1.Pod // as its source has it
	mirror  *v1.Pod // of a static pod; nil while the API server has none
	known   bool    // a source has the pod now
	removed bool    // no source had it at some time; if one has it again, it gets a new worker
	forced  bool    // see Syncer.Force
	discard bool    // see Syncer.Discard
	adopted bool    // it was found by its traces on the node: all of them are removed
	// held: spec is older than desired until a resize is decided. conditions of resizes are those shown last.
	held       bool
	conditions []v1.PodCondition
	// staticFullName is the full name of a static pod that only the runtime has.
	staticFullName string
}

func newWorker(s *Syncer, uid types.UID) *worker {
	return &worker{
		s:         s,
		uid:       uid,
		mail:      newMailbox(),
		ends:      newEnds(),
		history:   newHistory(),
		log:       s.cfg.Log.With("podUID", uid),
		tasks:     newTasks(),
		images:    images{},
		restarts:  newRestarts(uid, s.cfg.Disk.RestartRecords),
		sandboxes: sandboxes{stopped: map[string]bool{}},
		waiting:   newWaiting(),
		times:     times{arrived: s.cfg.Now()},
	}
}

// run takes turns until nothing is left to do, or ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.tasks.group.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-w.mail.ready:
		case <-timer.C:
			due = true
		}
		m := w.mail.take()
		if !due && !m.needsTurn() {
			w.answer(m.ask)
			continue
		}
		w.s.board.beginTurn(w.uid, w.s.cfg.Now())
		next, gone := w.safeTurn(ctx, m)
		w.s.board.endTurn(w.uid)
		w.answer(m.ask)
		if gone && w.s.leave(w) {
			w.ends.note(true, true)
			return
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(w.s.cfg.Now()), 0))
		}
	}
}

func (w *worker) answer(questions []chan<- explain.Pod) {
	for _, q := range questions {
		q <- w.safeExplain()
	}
}

// receive applies the mail: signals, requests, and the outcomes of tasks.
func (w *worker) receive(m mail, now time.Time) {
	w.source.forced = w.source.forced || m.force
	w.source.discard = w.source.discard || m.discard
	w.source.adopted = w.source.adopted || m.adopt && w.source.spec == nil
	if m.wake {
		w.admission.wake()
	}
	for _, r := range m.requests {
		w.termination.receive(r, now)
	}
	for _, f := range m.finished {
		w.settle(f)
	}
}

// turn syncs the pod once and starts the steps to take. It returns when to sync again if nothing happens first, and
// whether the pod is gone.
func (w *worker) turn(ctx context.Context) (next time.Time, gone bool) {
	now := w.s.cfg.Now()
	facts := gatherer{w}
	in := podplan.Assess(facts.observe(now))
	ctx, end := w.trace(ctx, in.State)
	defer end()
	facts.prepare(&in)
	plan := w.decide(&in)
	if plan.Blind {
		w.history.noteWaits(now, plan)
		w.plan.Waits = plan.Waits
		return time.Time{}, false
	}
	if in.Pod != nil {
		w.restarts.recreated = plan.Recreated
	}
	w.enter(now, plan, &in)
	w.announce(plan)
	do := performer{
		w:    w,
		plan: plan,
		in:   &in,
	}
	do.perform(ctx)
	w.tasks.dropRetries(now, plan)
	w.ends.note(plan.State >= podplan.Released, in.Have.Empty())
	w.publish(plan, &in)
	if plan.State > podplan.Pending && plan.Shown {
		w.measure(now, in.Have, plan.State >= podplan.Terminated)
	}
	next = clock.Earlier(plan.Wake, w.tasks.nextRetry(now))
	w.history.note(w, now, plan, &in, next)
	w.plan = plan
	if plan.State != podplan.Gone {
		return next, false
	}
	w.forget()
	return time.Time{}, true
}

// decide computes the plan, and takes its immediate steps, which only send requests to other parts. If their results
// change the facts, it computes the plan again.
func (w *worker) decide(in *podplan.Input) podplan.Plan {
	plan := podplan.Decide(*in)
	for range maxRounds {
		if !w.askOthers(plan, in) {
			break
		}
		plan = podplan.Decide(*in)
	}
	return plan
}

// maxRounds bounds the decisions of one turn: one for the images, and one for each of what a pod releases.
const maxRounds = 6

// askOthers takes the immediate steps of a plan, and reports whether their results may change the plan.
func (w *worker) askOthers(plan podplan.Plan, in *podplan.Input) (changed bool) {
	for _, step := range plan.Steps {
		switch step.Verb {
		case podplan.FetchImage:
			changed = w.pull(step) || changed
		case podplan.UnprepareClaims, podplan.UnmountVolumes, podplan.UnregisterObjects:
			changed = w.release(step.Verb, in) || changed
		}
	}
	if changed {
		in.Images = w.images.facts(w.tasks)
	}
	return changed
}

// enter applies the state of the plan to the worker.
func (w *worker) enter(now time.Time, plan podplan.Plan, in *podplan.Input) {
	if plan.State == podplan.Syncing {
		w.admission.state = podplan.Admitted
	}
	if begun := w.termination.Termination == nil && plan.Termination != nil; begun {
		w.beginTermination(now, plan.Termination, in)
	}
	w.termination.enter(plan.Termination)
	if plan.State >= podplan.Terminating {
		w.tasks.cancelStarts()
	}
	if plan.Overdue {
		w.s.cfg.Events.Pod(w.source.spec, "", v1.EventTypeWarning, pod.EventExceededGracePeriod,
			"Container runtime did not kill the pod within specified grace period.")
	}
}

// forget drops what other parts keep for the pod.
func (w *worker) forget() {
	if w.source.spec == nil && !w.source.adopted {
		w.leaveName() // it was listed, and gone when it was read
		return        // or this is a late event of a pod that is gone
	}
	cfg := &w.s.cfg
	cfg.Probes.Forget(w.uid)
	cfg.Images.Forget(w.uid)
	cfg.Status.Forget(w.uid)
	cfg.Allocation.Forget(w.uid)
	w.leaveName()
	if w.source.spec != nil {
		w.log.Info("pod is gone")
	}
}

// ref names the pod, by its specification or by what the runtime has.
func (w *worker) ref(have pod.Runtime) pod.Ref {
	ref := have.Ref
	if w.source.spec != nil {
		ref = pod.RefOf(w.source.spec)
	}
	ref.UID = w.uid
	return ref
}
