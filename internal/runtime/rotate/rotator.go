package rotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// reopener is the part of the runtime that reopens log files.
type reopener interface {
	// ReopenContainerLog returns when the container writes to a new file. It fails if the container
	// is not running.
	ReopenContainerLog(
		context.Context, *runtimeapi.ReopenContainerLogRequest,
	) (*runtimeapi.ReopenContainerLogResponse, error)
}

// Log is the live log file of a running container.
type Log struct {
	Container string // container ID
	Path      string // absolute path
	Pod       pod.Ref
	Name      string // name of the container in its pod
}

// Config holds what a Rotator is built from. Every field is required.
type Config struct {
	Runtime reopener
	// Running returns the logs of running containers.
	Running func() []Log
	// Known is closed when Running is complete.
	Known    <-chan struct{}
	Root     string // the root of all logs
	MaxSize  int64  // at which a log is rotated; negative: never
	MaxFiles int    // of one log, including the live one; at least 2
	Workers  int    // concurrent rotations
	Period   time.Duration
	Log      *slog.Logger
	Now      func() time.Time
}

// reopenLimit bounds the call to the runtime, so that a container that hangs does not block the
// rotation of others.
const reopenLimit = 10 * time.Second

// Rotator rotates logs.
type Rotator struct {
	cfg   Config
	size  atomic.Int64 // negative: no limit
	files atomic.Int64 // maximum per log
	slots chan struct{}
	group sync.WaitGroup

	mu     sync.Mutex
	busy   map[string]bool // by container: queued or being worked on
	failed map[string]bool // by container: the failure was logged
}

// New makes a Rotator. It does nothing before Run.
func New(cfg Config) *Rotator {
	r := &Rotator{cfg: cfg, slots: make(chan struct{}, cfg.Workers), busy: map[string]bool{}, failed: map[string]bool{}}
	r.Adjust(cfg.MaxSize, cfg.MaxFiles)
	return r
}

// Adjust changes the limits from the next check on.
func (r *Rotator) Adjust(maxSize int64, maxFiles int) {
	r.size.Store(maxSize)
	r.files.Store(int64(maxFiles))
}

// Run rotates logs until ctx ends, and returns when no worker is active.
func (r *Rotator) Run(ctx context.Context) error {
	defer r.group.Wait()
	select {
	case <-ctx.Done():
		return nil
	case <-r.cfg.Known:
	}
	for _, log := range r.cfg.Running() {
		r.work(ctx, log, r.clean)
	}
	elapsed := r.cfg.Period
	for {
		next := r.check(ctx, elapsed)
		if !clock.Sleep(ctx, next) {
			return nil
		}
		elapsed = next
	}
}

// check starts the rotation of logs that exceed the limit. It returns the time until the next check,
// given the time since the last one. It costs one stat per running container.
func (r *Rotator) check(ctx context.Context, elapsed time.Duration) time.Duration {
	if r.size.Load() < 0 {
		return r.cfg.Period // rotation by other tools is not interfered with
	}
	running := r.cfg.Running()
	r.forget(running)
	next := r.cfg.Period
	for _, log := range running {
		fi, err := os.Lstat(log.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.work(ctx, log, r.reopen)
		case err != nil:
			r.report(log, fmt.Errorf("stat log: %w", err))
		case !fi.Mode().IsRegular():
			r.report(log, fmt.Errorf("stat log %s: not a regular file", log.Path))
		case fi.Size() >= r.size.Load():
			next = min(next, nextCheck(fi.Size(), r.size.Load(), elapsed))
			r.work(ctx, log, r.rotate)
		default:
			r.report(log, nil)
		}
	}
	return next
}

// work queues an operation on a log for a worker, unless one is queued or active.
func (r *Rotator) work(ctx context.Context, log Log, do func(context.Context, Log) error) {
	r.mu.Lock()
	busy := r.busy[log.Container]
	r.busy[log.Container] = true
	r.mu.Unlock()
	if busy {
		return
	}
	r.group.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.busy, log.Container)
			r.mu.Unlock()
		}()
		select {
		case <-ctx.Done():
			return
		case r.slots <- struct{}{}:
		}
		defer func() { <-r.slots }()
		err := panics.Try(r.cfg.Log, "logs", func() error { return do(ctx, log) })
		if ctx.Err() == nil {
			r.report(log, err)
		}
	})
}

// report logs that a log cannot be rotated, once until rotation succeeds again.
func (r *Rotator) report(log Log, err error) {
	r.mu.Lock()
	logged := r.failed[log.Container]
	if err != nil {
		r.failed[log.Container] = true
	} else {
		delete(r.failed, log.Container)
	}
	r.mu.Unlock()
	if err != nil && !logged {
		r.cfg.Log.Warn("failed to rotate container log", "containerID", log.Container, "path", log.Path, "err", err)
	}
}

// forget drops the state of containers that are no longer running.
func (r *Rotator) forget(running []Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) == 0 {
		return
	}
	still := make(map[string]bool, len(running))
	for _, log := range running {
		if r.failed[log.Container] {
			still[log.Container] = true
		}
	}
	r.failed = still
}

// reopen has the runtime reopen a log. The error contains the container ID.
func (r *Rotator) reopen(ctx context.Context, log Log) error {
	ctx, cancel := context.WithTimeout(ctx, reopenLimit)
	defer cancel()
	_, err := r.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: log.Container})
	return err
}
