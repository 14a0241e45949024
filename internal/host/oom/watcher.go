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

// maxRecord is larger than any record.
const maxRecord = 16 << 10

// Config holds the configuration of a Watcher. All fields are required.
type Config struct {
	// Open opens the kernel log at its end. A read returns one record.
	Open func() (io.ReadCloser, error)
	// OnKill is called for each OOM kill. It must not block.
	OnKill func(Kill)
	Log    *slog.Logger
}

// Kmsg opens the kernel log of this machine.
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

// Watcher reads the kernel log.
type Watcher struct{ cfg Config }

// New returns a Watcher. It reads nothing before Run.
func New(cfg Config) *Watcher { return &Watcher{cfg} }

// Run reports OOM kills until ctx ends. If the log cannot be read, nothing is reported.
func (w *Watcher) Run(ctx context.Context) error {
	log, err := w.cfg.Open()
	if err != nil {
		w.cfg.Log.Warn("failed to open kernel log; OOM kills are not reported", "err", err)
		return nil
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- log.Close() }) // ends a blocked read
	record := make([]byte, maxRecord)
	for {
		n, err := log.Read(record)
		switch {
		case ctx.Err() != nil:
			return errors.Join(<-closed)
		case errors.Is(err, unix.EPIPE):
			continue // records were overwritten before they were read
		case err != nil:
			w.cfg.Log.Warn("failed to read kernel log", "err", err)
			stop()
			return errors.Join(log.Close())
		}
		if k, ok := Parse(string(record[:n])); ok {
			w.cfg.Log.Info("kernel killed process, out of memory",
				"process", k.Process, "pid", k.PID, "cgroup", k.Cgroup)
			w.cfg.OnKill(k)
		}
	}
}

// events records events.
type events interface {
	Node(eventType, reason, message string)
}

// RecordEvents returns an OnKill that records an event if the machine was out of memory.
func RecordEvents(e events) func(Kill) {
	return func(k Kill) {
		if k.Machine {
			e.Node(v1.EventTypeWarning, EventSystemOOM, fmt.Sprintf(messageSystemOOM, k.Process, k.PID))
		}
	}
}
