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

// Log is the health of a log.
type Log struct {
	now func() time.Time

	mu      sync.Mutex
	pending int       // lines that are being written
	moved   time.Time // when the last line was written, or when the first pending one began
	failed  error     // of the last line
}

// Watch returns a logger that writes with the handler of log, and the Log that shows its health.
func Watch(log *slog.Logger) (*slog.Logger, *Log) {
	w := &Log{now: time.Now}
	return slog.New(watchedHandler{log.Handler(), w}), w
}

// Healthy returns an error if lines are pending and none was written for longer than patience, or if writing the last
// line failed.
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
