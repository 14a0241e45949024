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

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// reopener is the part of the runtime that makes new log files.
type reopener interface {
	// ReopenContainerLog returns when the container writes to a file that has
	// the log's name now. It fails for a container that does not run.
	ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error)
}

// Log is the live log of a running container.
type Log struct {
	Container string // id
	Path      string // absolute
	Pod       pod.Ref
	Name      string // the container's in its pod
}

// Config holds what a Rotator is built from. Every field is required.
type Config struct {
	Runtime reopener
	// Running are the logs of containers that run now.
	Running func() []Log
	// Known is closed when Running tells everything.
	Known    <-chan struct{}
	Root     string // the directory of all logs
	MaxSize  int64  // of a log before it is rotated; below zero: it may grow
	MaxFiles int    // of one log, the live one included; at least 2
	Workers  int    // logs rotated at a time
	Period   time.Duration
	Log      *slog.Logger
	Now      func() time.Time
}

// reopenLimit bounds a worker's wait for the runtime: one container that hangs
// should not keep the logs of others growing.
const reopenLimit = 10 * time.Second

// Rotator rotates logs.
type Rotator struct {
	cfg   Config
	size  atomic.Int64 // that is too big for a log; below zero: none is
	files atomic.Int64 // of one log, at most
	slots chan struct{}
	group sync.WaitGroup

	mu     sync.Mutex
	busy   map[string]bool // by container; it waits for a worker or has one
	failed map[string]bool // by container; it was said already
}

// New makes a Rotator. Nothing is looked at before Run.
func New(cfg Config) *Rotator {
	r := &Rotator{cfg: cfg, slots: make(chan struct{}, cfg.Workers), busy: map[string]bool{}, failed: map[string]bool{}}
	r.Adjust(cfg.MaxSize, cfg.MaxFiles)
	return r
}

// Adjust has other limits hold from the next look on.
func (r *Rotator) Adjust(maxSize int64, maxFiles int) {
	r.size.Store(maxSize)
	r.files.Store(int64(maxFiles))
}

// Run rotates logs until ctx ends, and returns when no file is being worked on.
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
		next := r.look(ctx, elapsed)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
		elapsed = next
	}
}

// look finds the logs that are due, and tells when to look again, given how long
// ago the last time was. It costs one stat for each running container.
func (r *Rotator) look(ctx context.Context, elapsed time.Duration) time.Duration {
	if r.size.Load() < 0 {
		return r.cfg.Period // whoever else rotates them is not interfered with
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
			r.report(log, fmt.Errorf("look at log: %w", err))
		case !fi.Mode().IsRegular():
			r.report(log, fmt.Errorf("look at log %s: not a regular file", log.Path))
		case fi.Size() >= r.size.Load():
			next = min(next, pace(fi.Size(), r.size.Load(), elapsed))
			r.work(ctx, log, r.rotate)
		default:
			r.report(log, nil)
		}
	}
	return next
}

// work has a worker do something with a log, unless one does already.
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

// report says that a log cannot be rotated, once until it can be again.
func (r *Rotator) report(log Log, err error) {
	r.mu.Lock()
	said := r.failed[log.Container]
	if err != nil {
		r.failed[log.Container] = true
	} else {
		delete(r.failed, log.Container)
	}
	r.mu.Unlock()
	if err != nil && !said {
		r.cfg.Log.Warn("cannot rotate log", "container", log.Container, "path", log.Path, "err", err)
	}
}

// forget drops what was said of containers that do not run any more.
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

// reopen has the runtime make a log file. Its error names the container.
func (r *Rotator) reopen(ctx context.Context, log Log) error {
	ctx, cancel := context.WithTimeout(ctx, reopenLimit)
	defer cancel()
	_, err := r.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: log.Container})
	return err
}
