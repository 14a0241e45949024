package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/pods/panics"
)

// Config holds what a Reconciler is built from. Every field is required.
type Config[K comparable] struct {
	Part string      // of the agent, in the log and in the count of panics
	Lock sync.Locker // of the owner
	// Begin returns the attempt that begins now. A panic is an error of that attempt.
	Begin func(K) Attempt
	// Backoff is the pause before the attempt that follows failed ones. A success resets it.
	Backoff wait.Backoff
	Log     *slog.Logger
}

// Attempt is one attempt.
type Attempt struct {
	// Do makes the attempt. Its context ends when the key is cancelled or dropped, or that of
	// Start ends. A panic is an error of the attempt.
	Do func(context.Context) error
	// End decides what follows. The attempt is not running any more. It is not called for a key that
	// was dropped.
	End func(Result) Next
}

// Result is how an attempt has ended.
type Result struct {
	Err       error
	Cancelled bool          // the context of the attempt has ended
	Again     bool          // another attempt was requested while it was running
	Pause     time.Duration // how long Retry would wait
}

// Next is what follows an attempt. A requested attempt follows in any case, and at once.
type Next struct {
	Again  bool          // make another attempt at once
	Retry  bool          // make another attempt after the back-off
	After  time.Duration // make another attempt after this time; zero: none
	Forget bool          // nothing has to be done for the key any more, whatever was requested
	Then   func()        // is called without the lock; nil: nothing
}

// Reconciler makes attempts for keys.
type Reconciler[K comparable] struct {
	cfg Config[K]
	wg  sync.WaitGroup // attempts that are running

	// Guarded by Config.Lock:
	life  context.Context // of Start; nil before it
	tasks map[K]*task     // of the keys that are not idle
}

// task is the state of a key.
type task struct {
	running bool
	again   bool // another attempt follows the running one, or begins with Start
	dropped bool // while it is running
	cancel  context.CancelFunc
	backoff wait.Backoff
	timer   *time.Timer // of the next attempt; nil: none
	timers  int         // number of timers so far: one that was replaced does nothing
}

// New makes a Reconciler. It makes no attempts before Start.
func New[K comparable](cfg Config[K]) *Reconciler[K] {
	return &Reconciler[K]{
		cfg:   cfg,
		tasks: map[K]*task{},
	}
}

// Start begins to make attempts, until ctx ends, with those that were requested before.
func (r *Reconciler[K]) Start(ctx context.Context) {
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	r.life = ctx
	for key, t := range r.tasks {
		if t.again {
			r.startLocked(key, t)
		}
	}
}

// Wait returns when no attempt is running any more. It is called after the context of Start has ended.
func (r *Reconciler[K]) Wait() {
	r.cfg.Lock.Lock()
	for _, t := range r.tasks {
		t.stopTimer()
	}
	r.cfg.Lock.Unlock()
	r.wg.Wait()
}

// RequestLocked requests an attempt: now, or after the running one. It ends a pause.
func (r *Reconciler[K]) RequestLocked(key K) {
	t := r.taskLocked(key)
	t.dropped = false
	if t.running || !r.aliveLocked() {
		t.again = true
		return
	}
	r.startLocked(key, t)
}

// ScheduleLocked schedules an attempt after a time, in place of one that was scheduled before.
func (r *Reconciler[K]) ScheduleLocked(key K, after time.Duration) {
	t := r.taskLocked(key)
	t.dropped = false
	r.scheduleLocked(key, t, after)
}

// ResetLocked resets the back-off of a key.
func (r *Reconciler[K]) ResetLocked(key K) {
	if t := r.tasks[key]; t != nil {
		t.backoff = r.cfg.Backoff
	}
}

// CancelLocked cancels the running attempt of a key.
func (r *Reconciler[K]) CancelLocked(key K) {
	if t := r.tasks[key]; t != nil && t.running {
		t.cancel()
	}
}

// ForgetLocked ends all work for a key. The running attempt is cancelled, and its result ignored.
func (r *Reconciler[K]) ForgetLocked(key K) {
	t := r.tasks[key]
	if t == nil {
		return
	}
	t.stopTimer()
	if t.running {
		t.again, t.dropped, t.backoff = false, true, r.cfg.Backoff
		t.cancel()
		return
	}
	delete(r.tasks, key)
}

// RunningLocked reports whether an attempt of a key is running.
func (r *Reconciler[K]) RunningLocked(key K) bool {
	t := r.tasks[key]
	return t != nil && t.running
}

// ActiveLocked reports whether an attempt of a key is running or will be made.
func (r *Reconciler[K]) ActiveLocked(key K) bool {
	t := r.tasks[key]
	return t != nil && (t.running || t.again || t.timer != nil)
}

func (r *Reconciler[K]) aliveLocked() bool { return r.life != nil && r.life.Err() == nil }

func (r *Reconciler[K]) taskLocked(key K) *task {
	t := r.tasks[key]
	if t == nil {
		t = &task{backoff: r.cfg.Backoff}
		r.tasks[key] = t
	}
	return t
}

func (t *task) stopTimer() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	t.timers++
}

func (r *Reconciler[K]) scheduleLocked(key K, t *task, after time.Duration) {
	t.stopTimer()
	if r.life != nil && r.life.Err() != nil {
		return // nothing begins any more
	}
	mine := t.timers
	t.timer = panics.After(r.cfg.Log, r.cfg.Part, after, func() {
		r.cfg.Lock.Lock()
		defer r.cfg.Lock.Unlock()
		if t.timers == mine && r.tasks[key] == t {
			r.RequestLocked(key)
		}
	})
}

func (r *Reconciler[K]) startLocked(key K, t *task) {
	t.again = false
	var attempt Attempt
	if err := panics.Try(r.cfg.Log, r.cfg.Part, func() error {
		attempt = r.cfg.Begin(key)
		return nil
	}); err != nil { // logged and counted; the caller is not affected
		r.scheduleLocked(key, t, t.backoff.Step())
		return
	}
	t.stopTimer()
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(r.life)
	t.running = true
	r.wg.Go(func() {
		err := panics.Try(r.cfg.Log, r.cfg.Part, func() error { return attempt.Do(ctx) })
		if then := r.end(ctx, key, t, attempt, err); then != nil {
			then()
		}
	})
}

// end processes the end of an attempt.
func (r *Reconciler[K]) end(ctx context.Context, key K, t *task, attempt Attempt, err error) (then func()) {
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	cancelled := ctx.Err() != nil
	t.cancel()
	t.running = false
	if t.dropped {
		delete(r.tasks, key)
		return nil
	}
	if err == nil {
		t.backoff = r.cfg.Backoff
	}
	next := t.backoff // after a retry
	pause := next.Step()
	do := attempt.End(Result{
		Err:       err,
		Cancelled: cancelled,
		Again:     t.again,
		Pause:     pause,
	})
	if do.Retry {
		t.backoff = next
	}
	switch {
	case do.Forget:
		t.stopTimer()
		delete(r.tasks, key)
	case t.running || !r.aliveLocked(): // End has requested one already, or none is made any more
	case t.again || do.Again:
		r.startLocked(key, t)
	case do.Retry:
		r.scheduleLocked(key, t, pause)
	case do.After > 0:
		r.scheduleLocked(key, t, do.After)
	case t.timer == nil && err == nil:
		delete(r.tasks, key)
	}
	return do.Then
}
