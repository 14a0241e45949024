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

	"keelson/internal/config"
)

// everything is the level of a handler that does not filter.
const everything = slog.Level(math.MinInt32)

// byFile filters records by the level of their source file (vmodule).
type byFile struct {
	slog.Handler
	level slog.Leveler // of other files
	files logsapi.VModuleConfiguration
}

// Enabled is called before the source file is known.
func (h byFile) Enabled(_ context.Context, l slog.Level) bool {
	if l >= h.level.Level() {
		return true
	}
	for _, f := range h.files {
		if l >= config.LogLevel(uint32(f.Verbosity)) {
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

// levelOf returns the level of a record's source file: that of the first pattern that
// matches its name.
func (h byFile) levelOf(pc uintptr) slog.Level {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := strings.TrimSuffix(filepath.Base(frame.File), ".go")
	for _, f := range h.files {
		if match, err := filepath.Match(f.FilePattern, name); match && err == nil {
			return config.LogLevel(uint32(f.Verbosity))
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

// splitHandler writes errors to one stream and other records to another.
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

// bufferedWriter is a stream with a buffer for lines.
type bufferedWriter struct {
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	out    io.Writer
	buf    *bufio.Writer
	failed error // of the last flush, not yet returned
}

// newBufferedWriter buffers at most size bytes, for at most the period. The caller closes
// it.
func newBufferedWriter(w io.Writer, size int, period time.Duration) *bufferedWriter {
	h := &bufferedWriter{
		stop: make(chan struct{}),
		done: make(chan struct{}),
		out:  w,
		buf:  bufio.NewWriterSize(w, size),
	}
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

// Write fails if this or an earlier line could not be written.
func (h *bufferedWriter) Write(line []byte) (int, error) {
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

func (h *bufferedWriter) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushLocked()
}

func (h *bufferedWriter) flushLocked() { h.checkLocked(h.buf.Flush()) }

// checkLocked drops lines that could not be written. Later lines are tried again: the disk
// may have space by then.
func (h *bufferedWriter) checkLocked(err error) {
	if err != nil {
		h.failed = err
		h.buf.Reset(h.out)
	}
}

func (h *bufferedWriter) close() {
	close(h.stop)
	<-h.done
	h.flush()
}
