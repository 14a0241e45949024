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
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
)

// Session is a connection to the service that shuts down the machine.
type Session interface {
	// Announcements yields true when a shutdown begins and false when it is cancelled, in order. The channel is closed
	// when the connection is lost.
	Announcements() <-chan bool
	// ShuttingDown reports whether a shutdown is in progress.
	ShuttingDown(context.Context) (bool, error)
	// MaxDelay returns the maximum time for which a lock delays a shutdown.
	MaxDelay(context.Context) (time.Duration, error)
	// Reload reloads the configuration. It returns before that is done.
	Reload(context.Context) error
	// Delay takes an inhibitor lock, which delays a shutdown until it is closed. It is independent of the connection.
	// It fails during a shutdown.
	Delay(context.Context) (io.Closer, error)
	Close()
}

// Config holds the configuration of a Watcher. All fields are required.
type Config struct {
	Dial func(context.Context) (Session, error)
	// Allow writes the maximum delay to the configuration that Reload loads.
	Allow   func(time.Duration) error
	Periods []Period // in any order; none: shutdowns are not managed
	// Pods returns the pods. Settled is closed when it includes all pods that an earlier agent has started.
	Pods    func() []*v1.Pod
	Settled <-chan struct{}
	// End terminates a pod, or shortens its grace period. The channel is closed when the pod is released.
	End      func(uid types.UID, grace time.Duration) (released <-chan struct{})
	Events   pod.Events
	Dir      string // root directory
	OnChange func() // called when ShuttingDown changes; must not block
	Log      *slog.Logger
	Now      func() time.Time
}

// Watcher terminates pods before the machine shuts down.
type Watcher struct {
	cfg     Config
	trigger chan struct{} // capacity 1: the pods may have changed

	// Only used by the goroutine of Run:
	ending func() // cancels the current termination, and waits until it has stopped
	silent bool   // the current connection error was logged
	stayed bool   // no shutdown was in progress at some time since the start

	mu           sync.Mutex
	shuttingDown bool
	resumed      bool // the shutdown began before this agent was started
	state        state
	lock         io.Closer // nil: none
}

// New returns a Watcher. It does nothing before Run.
func New(cfg Config) *Watcher {
	cfg.Periods = inOrder(cfg.Periods)
	return &Watcher{cfg: cfg, trigger: make(chan struct{}, 1), ending: func() {}}
}

// ShuttingDown reports whether the machine is shutting down.
func (w *Watcher) ShuttingDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shuttingDown
}

// Resumed reports whether the machine is shutting down, and was already when this agent was started.
func (w *Watcher) Resumed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resumed
}

// Trigger notes that the pods may have changed. It never blocks.
func (w *Watcher) Trigger() {
	if !w.ShuttingDown() {
		return
	}
	select {
	case w.trigger <- struct{}{}:
	default: // one pending trigger is enough
	}
}

// Run manages shutdowns until ctx ends. Pods that are terminating then are not affected.
func (w *Watcher) Run(ctx context.Context) error {
	s, err := w.readState()
	if err != nil {
		w.cfg.Log.Warn("failed to read checkpoint of node shutdown", "err", err)
	}
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
	if len(w.cfg.Periods) == 0 {
		return nil
	}
	defer w.releaseLock()
	defer func() { w.ending() }()
	for {
		err := w.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !w.silent {
			w.cfg.Log.Warn("failed to watch for node shutdown", "err", err)
			w.silent = true
		}
		if !clock.Sleep(ctx, dialAgain) {
			return nil
		}
	}
}

// listen handles one connection until it is lost.
func (w *Watcher) listen(ctx context.Context) error {
	s, err := w.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := w.prepare(ctx, s); err != nil {
		return err
	}
	w.silent = false
	for {
		select {
		case <-ctx.Done():
			return nil
		case leaving, ok := <-s.Announcements():
			if !ok {
				return fmt.Errorf("watch for node shutdown: connection lost")
			}
			if err := w.handle(ctx, s, leaving); err != nil {
				return err
			}
		}
	}
}

// prepare ensures that shutdowns are delayed long enough, and reads the current state.
func (w *Watcher) prepare(ctx context.Context, s Session) error {
	leaving, err := s.ShuttingDown(ctx)
	if err != nil {
		return err
	}
	if !leaving {
		if err := w.increaseMaxDelay(ctx, s); err != nil {
			w.cfg.Log.Warn("failed to increase maximum delay of shutdowns", "err", err)
		}
	}
	return w.handle(ctx, s, leaving)
}

// handle reacts to an announcement.
func (w *Watcher) handle(ctx context.Context, s Session, leaving bool) error {
	if leaving {
		if !w.ShuttingDown() {
			w.begin(ctx)
		}
		return nil
	}
	w.stayed = true
	if w.ShuttingDown() {
		w.cancel()
	}
	// Before the old one is closed, so that there is always one.
	lock, err := s.Delay(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	old := w.lock
	w.lock = lock
	w.mu.Unlock()
	w.cfg.Log.Info("acquired shutdown inhibitor", "shutdownGracePeriod", Total(w.cfg.Periods))
	if old != nil {
		w.closeLock(old)
	}
	return nil
}

// begin starts to terminate the pods.
func (w *Watcher) begin(ctx context.Context) {
	w.setShuttingDown(true, !w.stayed)
	w.cfg.Log.Info("detected node shutdown, terminating pods", "shutdownGracePeriod", Total(w.cfg.Periods))
	w.cfg.Events.Node(v1.EventTypeNormal, EventShutdown, messageShutdown)
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	// An unfinished shutdown in the checkpoint is the current one only if no other state was seen since. Otherwise the
	// machine went down before it was finished.
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
			w.releaseLock()
		}
	}()
	w.ending = func() {
		cancel()
		<-done
	}
}

// cancel handles the cancellation of a shutdown.
func (w *Watcher) cancel() {
	w.ending()
	w.finish()
	w.cfg.Log.Info("node shutdown was cancelled")
	w.cfg.Events.Node(v1.EventTypeNormal, EventShutdown, messageCancelled)
	w.setShuttingDown(false, false)
}

// finish writes the end of the shutdown to the checkpoint.
func (w *Watcher) finish() {
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	if s.EndTime.IsZero() {
		s.EndTime = w.cfg.Now()
		w.writeState(s)
	}
}

func (w *Watcher) setShuttingDown(leaving, resumed bool) {
	w.mu.Lock()
	w.shuttingDown, w.resumed = leaving, resumed
	w.mu.Unlock()
	w.cfg.OnChange()
}

// releaseLock releases the inhibitor lock.
func (w *Watcher) releaseLock() {
	w.mu.Lock()
	lock := w.lock
	w.lock = nil
	w.mu.Unlock()
	if lock != nil {
		w.closeLock(lock)
	}
}

func (w *Watcher) closeLock(lock io.Closer) {
	if err := lock.Close(); err != nil {
		w.cfg.Log.Warn("failed to release shutdown inhibitor", "err", err)
	}
}

// increaseMaxDelay increases the maximum delay of logind to the shutdown grace period.
func (w *Watcher) increaseMaxDelay(ctx context.Context, s Session) error {
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
	backoff := wait.Backoff{Duration: reloadWait, Factor: 2, Steps: reloadTries}
	for try := range reloadTries {
		if try > 0 && !clock.Sleep(ctx, backoff.Step()) {
			return ctx.Err()
		}
		if have, err = s.MaxDelay(ctx); err != nil || have >= need {
			return err
		}
	}
	return fmt.Errorf("increase maximum delay to %v: it is %v after the reload", need, have)
}

// endPods terminates the groups of the plan one after another. It returns false if it was cancelled.
func (w *Watcher) endPods(ctx context.Context) bool {
	reported := map[types.UID]bool{}
	for i := range w.cfg.Periods {
		if !w.endGroup(ctx, i, reported) {
			return false
		}
	}
	return true
}

// endGroup terminates the pods of one period, and late ones of earlier periods, and waits for them. It returns false if
// it was cancelled.
func (w *Watcher) endGroup(ctx context.Context, i int, reported map[types.UID]bool) bool {
	over := time.NewTimer(w.cfg.Periods[i].Length)
	defer over.Stop()
	var ends []<-chan struct{}
	for {
		for _, group := range Plan(w.cfg.Pods(), w.cfg.Periods)[:i+1] {
			for _, end := range group.Pods {
				if !reported[end.UID] {
					reported[end.UID] = true
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
			w.cfg.Log.Warn("pods did not terminate within the period of their priority",
				"priority", w.cfg.Periods[i].Priority, "pods", len(ends), "period", w.cfg.Periods[i].Length)
			return true
		case <-w.trigger:
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
