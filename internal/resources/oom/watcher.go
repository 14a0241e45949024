package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// maxRecord is more than the kernel puts into one record.
const maxRecord = 16 << 10

// Config holds what a Watcher is built from. Every field is required.
type Config struct {
	// Open opens the kernel's log behind its last record. A read returns one record.
	Open func() (io.ReadCloser, error)
	// OnKill is told of every process that is killed; it must not block.
	OnKill func(Kill)
	Log    *slog.Logger
}

// Kmsg opens the log of this machine's kernel.
func Kmsg() (io.ReadCloser, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open kernel log: %w", err)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("open kernel log: %w", err), f.Close())
	}
	return f, nil
}

// Watcher reads the kernel's log.
type Watcher struct{ cfg Config }

// New makes a Watcher; nothing is read before Run.
func New(cfg Config) *Watcher { return &Watcher{cfg} }

// Run reads until ctx ends. A machine whose log cannot be read is one where nothing is
// told.
func (w *Watcher) Run(ctx context.Context) error {
	log, err := w.cfg.Open()
	if err != nil {
		w.cfg.Log.Warn("cannot tell of processes that the kernel kills for want of memory", "err", err)
		return nil
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- log.Close() }) // ends a read that waits
	record := make([]byte, maxRecord)
	for {
		n, err := log.Read(record)
		switch {
		case ctx.Err() != nil:
			return errors.Join(<-closed)
		case errors.Is(err, unix.EPIPE):
			continue // records were overwritten before they were read; the next ones follow
		case err != nil:
			w.cfg.Log.Warn("cannot go on reading the kernel's log", "err", err)
			stop()
			return errors.Join(log.Close())
		}
		if k, ok := Parse(string(record[:n])); ok {
			w.cfg.Log.Info("the kernel killed a process for want of memory", "process", k.Process, "pid", k.PID, "cgroup", k.Cgroup)
			w.cfg.OnKill(k)
		}
	}
}

// events tells what happens to the node.
type events interface {
	Node(eventType, reason, message string)
}

// Tell makes an OnKill that records an event where the whole machine was out of memory,
// whichever process was killed.
func Tell(e events) func(Kill) {
	return func(k Kill) {
		if k.Machine {
			e.Node(v1.EventTypeWarning, EventSystemOOM, fmt.Sprintf(says, k.Process, k.PID))
		}
	}
}
