package shutdown

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Session is a connection to whoever shuts the machine down.
type Session interface {
	// Announcements say true when a shutdown begins and false when it is called off,
	// in their order. The channel is closed when the connection is lost.
	Announcements() <-chan bool
	// Leaving reports whether a shutdown is under way.
	Leaving(context.Context) (bool, error)
	// MaxDelay is how long a lock can delay a shutdown.
	MaxDelay(context.Context) (time.Duration, error)
	// Reload has the settings that say so read again; that takes a moment.
	Reload(context.Context) error
	// Delay takes a lock, which delays a shutdown until it is closed. It outlives
	// the connection. None is given during a shutdown.
	Delay(context.Context) (io.Closer, error)
	Close()
}

// Config holds what a Watcher is built from. Every field is required.
type Config struct {
	Dial func(context.Context) (Session, error)
	// Allow writes down, for Reload to read, that a lock may delay a shutdown so long.
	Allow   func(time.Duration) error
	Periods []Period // in any order; none: shutdowns are not looked after
	// Pods are those that there are. Settled is closed when all that an earlier agent
	// has started are among them.
	Pods    func() []*v1.Pod
	Settled <-chan struct{}
	// End ends a pod, or shortens the time that it has left. The channel is closed
	// when all that the pod held is released.
	End      func(uid types.UID, grace time.Duration) (released <-chan struct{})
	Events   pod.Events
	Dir      string // the agent's
	OnChange func() // Leaving tells something else now; must not block
	Log      *slog.Logger
	Now      func() time.Time
}

// Watcher ends pods before the machine shuts down.
type Watcher struct {
	cfg  Config
	poke chan struct{} // capacity 1: there may be other pods now

	// Of Run's goroutine alone:
	ending func() // calls off the end of the pods that was begun last, and waits until it has stopped
	silent bool   // why there is no connection was said
	stayed bool   // the machine has stayed since the start, at some time

	mu      sync.Mutex
	leaving bool
	resumed bool // the shutdown had begun before this agent started
	state   state
	lock    io.Closer // nil: none is held
}

// New makes a Watcher, which does nothing before Run.
func New(cfg Config) *Watcher {
	cfg.Periods = inOrder(cfg.Periods)
	return &Watcher{cfg: cfg, poke: make(chan struct{}, 1), ending: func() {}}
}

// Leaving reports whether the machine is shutting down.
func (w *Watcher) Leaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaving
}

// Resumed reports whether the machine is shutting down, and already was when this agent started.
func (w *Watcher) Resumed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resumed
}

// Poke says that there may be other pods now. It never blocks.
func (w *Watcher) Poke() {
	if !w.Leaving() {
		return
	}
	select {
	case w.poke <- struct{}{}:
	default: // one waiting poke says all there is to say
	}
}

// Run looks after shutdowns until ctx ends. Pods that are ending then go on ending.
func (w *Watcher) Run(ctx context.Context) error {
	s, err := w.readState()
	if err != nil {
		w.cfg.Log.Warn("cannot tell of the last shutdown", "err", err)
	}
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
	if len(w.cfg.Periods) == 0 {
		return nil
	}
	defer w.letGo()
	defer func() { w.ending() }()
	for {
		err := w.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !w.silent {
			w.cfg.Log.Warn("cannot look after shutdowns of the machine, will keep trying", "err", err)
			w.silent = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(dialAgain):
		}
	}
}

// listen keeps one connection until it is lost.
func (w *Watcher) listen(ctx context.Context) error {
	s, err := w.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := w.greet(ctx, s); err != nil {
		return err
	}
	w.cfg.Log.Info("shutdowns of the machine are looked after", "mayTake", Total(w.cfg.Periods))
	w.silent = false
	for {
		select {
		case <-ctx.Done():
			return nil
		case leaving, ok := <-s.Announcements():
			if !ok {
				return fmt.Errorf("listen for shutdowns: the connection is lost")
			}
			if err := w.turn(ctx, s, leaving); err != nil {
				return err
			}
		}
	}
}

// greet sees to it that shutdowns wait long enough, and finds out what was announced
// while nobody listened.
func (w *Watcher) greet(ctx context.Context, s Session) error {
	leaving, err := s.Leaving(ctx)
	if err != nil {
		return err
	}
	if !leaving {
		if err := w.widen(ctx, s); err != nil {
			w.cfg.Log.Warn("shutdowns of the machine wait for less than pods may take", "err", err)
		}
	}
	return w.turn(ctx, s, leaving)
}

// turn does what an announcement calls for.
func (w *Watcher) turn(ctx context.Context, s Session, leaving bool) error {
	if leaving {
		if !w.Leaving() {
			w.leave(ctx)
		}
		return nil
	}
	w.stayed = true
	if w.Leaving() {
		w.stay()
	}
	// The new one comes first: no moment is without.
	lock, err := s.Delay(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	old := w.lock
	w.lock = lock
	w.mu.Unlock()
	if old != nil {
		w.drop(old)
	}
	return nil
}

// leave begins to end the pods.
func (w *Watcher) leave(ctx context.Context) {
	w.setLeaving(true, !w.stayed)
	w.cfg.Log.Info("the machine shuts down: pods are ended", "mayTake", Total(w.cfg.Periods))
	w.cfg.Events.Node(v1.EventTypeNormal, EventShutdown, saysShutdown)
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	// One that an agent before this one began, and that did not end, is this one only if
	// the machine has not stayed meanwhile: else it went down before the pods had ended.
	if w.stayed || s.StartTime.IsZero() || !s.EndTime.IsZero() {
		s = state{StartTime: w.cfg.Now()}
	}
	w.writeState(s)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w.endPods(ctx) {
			w.finish()
			w.letGo()
		}
	}()
	w.ending = func() {
		cancel()
		<-done
	}
}

// stay takes back what can be taken back of a shutdown that was called off.
func (w *Watcher) stay() {
	w.ending()
	w.finish()
	w.cfg.Log.Info("the machine does not shut down after all")
	w.cfg.Events.Node(v1.EventTypeNormal, EventShutdown, saysCancelled)
	w.setLeaving(false, false)
}

// finish writes down that the shutdown is over, as far as pods go.
func (w *Watcher) finish() {
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	if s.EndTime.IsZero() {
		s.EndTime = w.cfg.Now()
		w.writeState(s)
	}
}

func (w *Watcher) setLeaving(leaving, resumed bool) {
	w.mu.Lock()
	w.leaving, w.resumed = leaving, resumed
	w.mu.Unlock()
	w.cfg.OnChange()
}

// letGo has a shutdown wait no longer.
func (w *Watcher) letGo() {
	w.mu.Lock()
	lock := w.lock
	w.lock = nil
	w.mu.Unlock()
	if lock != nil {
		w.drop(lock)
	}
}

func (w *Watcher) drop(lock io.Closer) {
	if err := lock.Close(); err != nil {
		w.cfg.Log.Warn("cannot let go of the lock against shutdown", "err", err)
	}
}

// widen has locks delay a shutdown for as long as pods may take.
func (w *Watcher) widen(ctx context.Context, s Session) error {
	need := Total(w.cfg.Periods)
	have, err := s.MaxDelay(ctx)
	if err != nil || have >= need {
		return err
	}
	if err := w.cfg.Allow(need); err != nil {
		return err
	}
	if err := s.Reload(ctx); err != nil {
		return err
	}
	wait := reloadWait
	for try := range reloadTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
			wait *= 2
		}
		if have, err = s.MaxDelay(ctx); err != nil || have >= need {
			return err
		}
	}
	return fmt.Errorf("have shutdowns wait for %v: they wait for %v after the settings were read again", need, have)
}

// endPods ends the groups of the plan one after another, and reports whether it came
// to the end of them.
func (w *Watcher) endPods(ctx context.Context) bool {
	told := map[types.UID]bool{}
	for i := range w.cfg.Periods {
		if !w.endGroup(ctx, i, told) {
			return false
		}
	}
	return true
}

// endGroup ends the pods of one period, and those of earlier ones that turn up late,
// and waits for them. It reports whether it was let do so.
func (w *Watcher) endGroup(ctx context.Context, i int, told map[types.UID]bool) bool {
	over := time.NewTimer(w.cfg.Periods[i].Length)
	defer over.Stop()
	var ends []<-chan struct{}
	for {
		for _, group := range Plan(w.cfg.Pods(), w.cfg.Periods)[:i+1] {
			for _, end := range group.Ends {
				if !told[end.UID] {
					told[end.UID] = true
					ends = append(ends, w.cfg.End(end.UID, end.Grace))
				}
			}
		}
		ends = slices.DeleteFunc(ends, isClosed)
		next := w.cfg.Settled
		if len(ends) > 0 {
			next = ends[0]
		} else if isClosed(next) {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			w.cfg.Log.Warn("pods have not ended within their time", "priority", w.cfg.Periods[i].Priority, "pods", len(ends), "had", w.cfg.Periods[i].Length)
			return true
		case <-w.poke:
		case <-next:
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
