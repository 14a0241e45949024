package loghealth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// patience is how long a line of the log may take to be written.
const patience = 2 * time.Minute

// Log knows how the writing of a log goes.
type Log struct {
	now func() time.Time

	mu      sync.Mutex
	pending int       // lines that are being written
	moved   time.Time // when the last line was done, or the first of those pending begun
	failed  error     // of the last line
}

// Watch makes a logger that writes where log does, and the Log that knows how that goes.
func Watch(log *slog.Logger) (*slog.Logger, *Log) {
	w := &Log{now: time.Now}
	return slog.New(watchedHandler{log.Handler(), w}), w
}

// Healthy fails while the log takes no lines, or the last line was not written.
func (w *Log) Healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ago := w.now().Sub(w.moved); w.pending > 0 && ago > patience {
		return fmt.Errorf("no line of the log was written for %v, with %d waiting", ago.Round(time.Second), w.pending)
	}
	if w.failed != nil {
		return fmt.Errorf("write log: %w", w.failed)
	}
	return nil
}

func (w *Log) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == 0 {
		w.moved = w.now()
	}
	w.pending++
}

func (w *Log) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending--
	w.moved, w.failed = w.now(), err
}

// watchedHandler reports each line that it writes.
type watchedHandler struct {
	slog.Handler
	w *Log
}

func (h watchedHandler) Handle(ctx context.Context, r slog.Record) error {
	h.w.begin()
	err := h.Handler.Handle(ctx, r)
	h.w.end(err)
	return err
}

func (h watchedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return watchedHandler{h.Handler.WithAttrs(attrs), h.w}
}

func (h watchedHandler) WithGroup(name string) slog.Handler {
	return watchedHandler{h.Handler.WithGroup(name), h.w}
}
