package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
)

const (
	// stampFormat is RFC 3339 with nine digits, so that all timestamps have the same length.
	stampFormat = "2006-01-02T15:04:05.000000000Z07:00"
	// pollPeriod is the maximum time that a follower sleeps. A container's exit does not change the
	// log, and notifications may be lost.
	pollPeriod = time.Second
	// settle is how long a rotated file must be unchanged before a follower continues with the new
	// one. Runtimes first create the new file and then write buffered lines to the old one.
	settle = 100 * time.Millisecond
	// maxLine bounds memory usage. Runtimes split lines at 16 KiB, and json-file escapes a byte to
	// at most six.
	maxLine = 1 << 20
)

// Options select the part of a log to read.
type Options struct {
	// Root is the directory that the path must not leave. Empty means the directory three levels
	// above the file.
	Root       string
	Follow     bool
	TailLines  *int64    // nil: from the beginning
	LimitBytes *int64    // nil: no limit
	Since      time.Time // zero: from the beginning
	Timestamps bool
	Stream     Stream // empty: both
	// Opened is called when the log is open, before anything is read. Optional.
	Opened func()
}

// Since returns the start time from either of the API's parameters.
func Since(seconds *int64, t time.Time, now time.Time) time.Time {
	if seconds != nil {
		return now.Add(-pod.Seconds(*seconds))
	}
	return t
}

var errEnough = errors.New("limit reached")

// ReadLogs writes the selected output of a container to stdout and stderr. With Follow it continues
// until isRunning returns false or ctx ends, without losing lines at rotations. Lines of unknown
// format are skipped.
func ReadLogs(
	ctx context.Context, path string, opts Options, stdout, stderr io.Writer, isRunning func(
		context.Context,
	) (bool, error),
) error {
	p, err := at(opts.Root, path)
	if err != nil {
		return err
	}
	defer p.close()
	f, err := p.open()
	if err != nil {
		return err
	}
	r := &reader{
		place:     p,
		file:      f,
		opts:      opts,
		out:       writer{opts: opts, stdout: stdout, stderr: stderr},
		isRunning: isRunning,
	}
	defer func() { _ = r.file.Close() }()
	if opts.Opened != nil {
		opts.Opened()
	}
	err = r.run(ctx)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// reader is one call of ReadLogs.
type reader struct {
	place     *place
	file      *os.File
	in        *bufio.Reader
	offset    int64  // of file, up to which it was read
	rest      []byte // a partial line
	skip      bool   // the partial line is too long to buffer
	left      int64  // remaining lines; negative: no limit
	opts      Options
	out       writer
	isRunning func(context.Context) (bool, error)
}

func (r *reader) run(ctx context.Context) error {
	r.left = -1
	if n := r.opts.TailLines; n != nil {
		fi, err := r.file.Stat()
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if r.offset, err = tailStart(r.file, fi.Size(), *n); err != nil {
			return err
		}
		if !r.opts.Follow {
			r.left = max(*n, 0) // limited to these, if the log grows meanwhile
		}
	}
	if n := r.opts.LimitBytes; n != nil {
		r.out.limit, r.out.limited = *n, true
	}
	r.in = bufio.NewReaderSize(io.NewSectionReader(r.file, r.offset, 1<<62), block)
	if !r.opts.Follow {
		if err := r.drain(ctx); err != nil {
			return err
		}
		return r.finish()
	}
	return r.follow(ctx)
}

// drain reads to the end of the file.
func (r *reader) drain(ctx context.Context) error {
	for r.left != 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := r.in.ReadSlice('\n')
		r.offset += int64(len(b))
		switch {
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF):
			r.buffer(b)
			if err == io.EOF {
				return nil
			}
			continue
		case err != nil:
			return fmt.Errorf("read log: %w", err)
		}
		if len(r.rest) > 0 || r.skip {
			r.buffer(b)
			b = r.rest
		}
		tooLong := r.skip
		r.rest, r.skip = r.rest[:0], false
		if tooLong {
			continue
		}
		if err := r.emit(b); err != nil {
			return err
		}
	}
	return errEnough
}

// buffer buffers a partial line, unless it is too long.
func (r *reader) buffer(b []byte) {
	if r.skip || len(r.rest)+len(b) > maxLine {
		r.rest, r.skip = r.rest[:0], true
		return
	}
	r.rest = append(r.rest, b...)
}

// finish writes a last line without line feed, which remains if the runtime was killed while
// writing.
func (r *reader) finish() error {
	if len(r.rest) == 0 || r.left == 0 {
		return nil
	}
	b := r.rest
	r.rest = nil
	return r.emit(b)
}

func (r *reader) emit(raw []byte) error {
	if r.left > 0 {
		r.left--
	}
	l, err := parse(raw)
	if err != nil {
		return nil // a truncated line
	}
	return r.out.write(l)
}

// follow continues to read while the container is running.
func (r *reader) follow(ctx context.Context) error {
	// inotify watches are limited per user. Without one the follower only polls, as it does anyway.
	var events <-chan fsnotify.Event
	var errs <-chan error
	if watch, err := watchDir(r.place.dir); err == nil {
		defer watch.Close()
		events, errs = watch.Events, watch.Errors
	}
	timer := time.NewTimer(pollPeriod)
	defer timer.Stop()
	for {
		// Check before reading: when a container is reported as exited, its output is complete.
		running, err := r.isRunning(ctx)
		if err != nil {
			return err
		}
		if err := r.drain(ctx); err != nil {
			return err
		}
		next, err := r.place.after(r.file)
		if err != nil {
			return err
		}
		if next != nil {
			if err := r.switchTo(ctx, next); err != nil {
				return err
			}
			continue
		}
		if err := r.rewindTruncated(); err != nil {
			return err
		}
		if !running {
			return r.finish()
		}
		timer.Reset(pollPeriod)
		if err := r.wait(ctx, events, errs, timer); err != nil {
			return err
		}
	}
}

// watchDir watches a directory for changes.
func watchDir(dir string) (*fsnotify.Watcher, error) {
	watch, err := fsnotify.NewBufferedWatcher(64)
	if err != nil {
		return nil, fmt.Errorf("watch log: %w", err)
	}
	if err := watch.Add(dir); err != nil {
		return nil, fmt.Errorf("watch log directory %s: %w", dir, errors.Join(err, watch.Close()))
	}
	return watch, nil
}

// wait returns when the log may have changed.
func (r *reader) wait(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, timer *time.Timer) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case ev := <-events:
			if filepath.Base(ev.Name) == filepath.Base(r.place.name) {
				return nil
			}
		case err := <-errs:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch log directory %s: %w", r.place.dir, err)
			}
			return nil
		}
	}
}

// switchTo reads the rest of the rotated file, once it no longer changes, and switches to the new
// one.
func (r *reader) switchTo(ctx context.Context, next *os.File) error {
	for before := int64(-1); before != r.offset; {
		before = r.offset
		if !clock.Sleep(ctx, settle) {
			_ = next.Close()
			return ctx.Err()
		}
		if err := r.drain(ctx); err != nil {
			_ = next.Close()
			return err
		}
	}
	if err := r.finish(); err != nil {
		_ = next.Close()
		return err
	}
	text, err := content(next, 0)
	if err != nil {
		_ = next.Close()
		return err
	}
	_ = r.file.Close()
	r.file, r.offset = next, 0
	r.in.Reset(text)
	return nil
}

// rewindTruncated starts again if the file was truncated.
func (r *reader) rewindTruncated() error {
	if isCompressed(r.file.Name()) {
		return nil // compressed files do not change, and the size is not that of the text
	}
	fi, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if fi.Size() < r.offset {
		r.offset, r.rest, r.skip = 0, nil, false
		r.in.Reset(io.NewSectionReader(r.file, 0, 1<<62))
	}
	return nil
}

// writer writes lines to the output streams.
type writer struct {
	opts           Options
	stdout, stderr io.Writer
	limited        bool
	limit          int64 // bytes remaining
	middle         map[Stream]bool
}

func (w *writer) write(l line) error {
	if l.time.Before(w.opts.Since) || w.opts.Stream != "" && l.stream != w.opts.Stream {
		return nil
	}
	out := l.text
	if w.opts.Timestamps && !w.middle[l.stream] {
		out = append([]byte(l.time.Format(stampFormat)+" "), out...)
	}
	if w.middle == nil {
		w.middle = map[Stream]bool{}
	}
	w.middle[l.stream] = !bytes.HasSuffix(l.text, []byte{'\n'})
	enough := false
	if w.limited {
		if int64(len(out)) >= w.limit {
			out, enough = out[:w.limit], true
		}
		w.limit -= int64(len(out))
	}
	to := w.stdout
	if l.stream == Stderr {
		to = w.stderr
	}
	// Lines of a stream without a writer are skipped.
	if to != nil && len(out) > 0 {
		if _, err := to.Write(out); err != nil {
			return err
		}
	}
	if enough {
		return errEnough
	}
	return nil
}
