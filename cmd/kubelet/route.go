package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"

	"keelson/internal/app"
)

// everything is the level of a handler that leaves it to another to choose.
const everything = slog.Level(math.MinInt32)

// byFile lets some source files say more than the rest.
type byFile struct {
	slog.Handler
	level slog.Leveler // of the rest
	files logsapi.VModuleConfiguration
}

// Enabled is asked before it is known who speaks.
func (h byFile) Enabled(_ context.Context, l slog.Level) bool {
	if l >= h.level.Level() {
		return true
	}
	for _, f := range h.files {
		if l >= app.Level(uint32(f.Verbosity)) {
			return true
		}
	}
	return false
}

func (h byFile) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= h.level.Level() || r.Level >= h.levelOf(r.PC) {
		return h.Handler.Handle(ctx, r)
	}
	return nil
}

// levelOf is the level of the file that a record comes from: that of the first
// pattern that matches its name.
func (h byFile) levelOf(pc uintptr) slog.Level {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := strings.TrimSuffix(filepath.Base(frame.File), ".go")
	for _, f := range h.files {
		if match, err := filepath.Match(f.FilePattern, name); match && err == nil {
			return app.Level(uint32(f.Verbosity))
		}
	}
	return h.level.Level()
}

func (h byFile) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h byFile) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// splitHandler writes errors to one stream and all the rest to another.
type splitHandler struct{ errors, rest slog.Handler }

func (h splitHandler) of(l slog.Level) slog.Handler {
	if l >= slog.LevelError {
		return h.errors
	}
	return h.rest
}

func (h splitHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.of(l).Enabled(ctx, l)
}

func (h splitHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

func (h splitHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return splitHandler{h.errors.WithAttrs(attrs), h.rest.WithAttrs(attrs)}
}

func (h splitHandler) WithGroup(name string) slog.Handler {
	return splitHandler{h.errors.WithGroup(name), h.rest.WithGroup(name)}
}

// heldBack is a stream whose lines are written many at a time.
type heldBack struct {
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	out    io.Writer
	buf    *bufio.Writer
	failed error // of the last flush that nobody was told of
}

// holdBack holds back at most size bytes, and none for longer than the period. The
// result is to be closed.
func holdBack(w io.Writer, size int, period time.Duration) *heldBack {
	h := &heldBack{stop: make(chan struct{}), done: make(chan struct{}), out: w, buf: bufio.NewWriterSize(w, size)}
	go func() {
		defer close(h.done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-h.stop:
				return
			case <-tick.C:
				h.flush()
			}
		}
	}()
	return h
}

// Write fails if this line could not be written, or those before it.
func (h *heldBack) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.buf.Buffered() > 0 && len(line) > h.buf.Available() {
		h.flushLocked()
	}
	n, err := h.buf.Write(line)
	h.checkLocked(err)
	err, h.failed = h.failed, nil
	return n, err
}

func (h *heldBack) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushLocked()
}

func (h *heldBack) flushLocked() { h.checkLocked(h.buf.Flush()) }

// checkLocked gives up what could not be written. Lines to come are tried again: a
// disk that was full need not stay so.
func (h *heldBack) checkLocked(err error) {
	if err != nil {
		h.failed = err
		h.buf.Reset(h.out)
	}
}

func (h *heldBack) close() {
	close(h.stop)
	<-h.done
	h.flush()
}
