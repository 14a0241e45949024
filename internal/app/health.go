package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"keelson/internal/node/server"
	"keelson/internal/resources/device"
)

const (
	// logPatience is how long a line of the log may take to be written.
	logPatience = 2 * time.Minute
	// minTurnPatience is the least that a turn of a pod's worker may take before
	// the agent is not well; see [turnPatience].
	minTurnPatience = 5 * time.Minute
)

// turnPatience follows the setting that paced the loop of the agent before this
// one: two rounds of it.
func turnPatience(syncFrequency time.Duration) time.Duration {
	return max(2*syncFrequency, minTurnPatience)
}

// checks are the health checks that have names of their own.
func (a *agent) checks() []server.Check {
	return []server.Check{{Name: "log", Check: a.written.healthy}, {Name: "syncloop", Check: a.syncer.Healthy},
		{Name: device.CheckName, Check: a.devices.Healthy}}
}

// writing knows how the writing of the log goes. An agent whose log does not
// take a line stands still sooner or later, part by part.
type writing struct {
	now func() time.Time

	mu      sync.Mutex
	pending int       // lines that are being written
	moved   time.Time // when the last line was done, or the first of those pending begun
	failed  error     // of the last line
}

// watchLog makes a logger that writes where log does, and what tells how that goes.
func watchLog(log *slog.Logger) (*slog.Logger, *writing) {
	w := &writing{now: time.Now}
	return slog.New(watchedHandler{log.Handler(), w}), w
}

func (w *writing) healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ago := w.now().Sub(w.moved); w.pending > 0 && ago > logPatience {
		return fmt.Errorf("no line of the log was written for %v, with %d waiting", ago.Round(time.Second), w.pending)
	}
	if w.failed != nil {
		return fmt.Errorf("write log: %w", w.failed)
	}
	return nil
}

func (w *writing) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == 0 {
		w.moved = w.now()
	}
	w.pending++
}

func (w *writing) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending--
	w.moved, w.failed = w.now(), err
}

// watchedHandler tells of each line that it writes.
type watchedHandler struct {
	slog.Handler
	w *writing
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
