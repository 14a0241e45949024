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

	"keelson/internal/pods/pod"
)

const (
	// stampFormat is RFC 3339 with all nine digits, so that stamps line up.
	stampFormat = "2006-01-02T15:04:05.000000000Z07:00"
	// look is how long a follower sleeps at most: an exit leaves no mark in the
	// log, and a notification may be lost.
	look = time.Second
	// settle is how long an old file must have been quiet before a follower
	// goes on to the new one: runtimes make the new file first and then write
	// what they still hold to the old one.
	settle = 100 * time.Millisecond
	// maxLine bounds the memory of a reader. Runtimes cut lines at 16 KiB, and
	// json-file escapes a byte with six at worst.
	maxLine = 1 << 20
)

// Options say what of a log is wanted.
type Options struct {
	// Root is the directory that the path must not lead out of; empty means
	// the one three levels above the file.
	Root       string
	Follow     bool
	TailLines  *int64    // nil: from the beginning
	LimitBytes *int64    // nil: no limit
	Since      time.Time // zero: from the beginning
	Timestamps bool
	Stream     Stream // empty: both
	// Opened is called once the log is open, before anything of it is read. Optional.
	Opened func()
}

// Since is the time from which lines are wanted, by either of the API's ways to
// say it.
func Since(seconds *int64, t time.Time, now time.Time) time.Time {
	if seconds != nil {
		return now.Add(-pod.Seconds(*seconds))
	}
	return t
}

var errEnough = errors.New("limit reached")

// ReadLogs writes the output of a container, as far as opts want it, to stdout
// and stderr. When it follows, it goes on until the container does not run any
// more, which isRunning tells, or ctx ends; a rotation of the log in between
// loses no line. Lines that are in no known format are left out.
func ReadLogs(ctx context.Context, path string, opts Options, stdout, stderr io.Writer, isRunning func(context.Context) (bool, error)) error {
	p, err := at(opts.Root, path)
	if err != nil {
		return err
	}
	defer p.close()
	f, err := p.open()
	if err != nil {
		return err
	}
	r := &reader{place: p, file: f, opts: opts, out: writer{opts: opts, stdout: stdout, stderr: stderr}, isRunning: isRunning}
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
	offset    int64  // of what was read of file
	rest      []byte // an unfinished line
	skip      bool   // the unfinished line is too long to keep
	left      int64  // lines still wanted; below zero: all
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
			r.left = max(*n, 0) // not more, if the log grows meanwhile
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
			r.keep(b)
			if err == io.EOF {
				return nil
			}
			continue
		case err != nil:
			return fmt.Errorf("read log: %w", err)
		}
		if len(r.rest) > 0 || r.skip {
			r.keep(b)
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

// keep holds back an unfinished line, if it is not absurdly long.
func (r *reader) keep(b []byte) {
	if r.skip || len(r.rest)+len(b) > maxLine {
		r.rest, r.skip = r.rest[:0], true
		return
	}
	r.rest = append(r.rest, b...)
}

// finish writes what stands at the end of the log without an end of line: the
// runtime died while it wrote.
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
		return nil // a line that a runtime left half written
	}
	return r.out.write(l)
}

// follow reads on while the container runs.
func (r *reader) follow(ctx context.Context) error {
	// The kernel's watches are few, and shared by all programs of a user. A follower
	// that gets none looks for itself: it does so now and then in any case.
	var told <-chan fsnotify.Event
	var troubles <-chan error
	if watch, err := watchDir(r.place.dir); err == nil {
		defer watch.Close()
		told, troubles = watch.Events, watch.Errors
	}
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		// Ask before reading: what a container wrote before its end is in the
		// log when it is said to have ended.
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
			if err := r.change(ctx, next); err != nil {
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
		timer.Reset(look)
		if err := r.wait(ctx, told, troubles, timer); err != nil {
			return err
		}
	}
}

// watchDir tells of changes in a directory.
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
func (r *reader) wait(ctx context.Context, told <-chan fsnotify.Event, troubles <-chan error, timer *time.Timer) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case ev := <-told:
			if filepath.Base(ev.Name) == filepath.Base(r.place.name) {
				return nil
			}
		case err := <-troubles:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch log directory %s: %w", r.place.dir, err)
			}
			return nil
		}
	}
}

// change reads the rest of the old file, once nothing more arrives there, and
// goes on with the new one.
func (r *reader) change(ctx context.Context, next *os.File) error {
	for before := int64(-1); before != r.offset; {
		before = r.offset
		select {
		case <-ctx.Done():
			_ = next.Close()
			return ctx.Err()
		case <-time.After(settle):
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

// rewindTruncated starts again when somebody cut the file short.
func (r *reader) rewindTruncated() error {
	if isCompressed(r.file.Name()) {
		return nil // nobody writes to it, and its size says nothing of its text
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

// writer sends lines where they belong.
type writer struct {
	opts           Options
	stdout, stderr io.Writer
	limited        bool
	limit          int64 // bytes still allowed
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
	// Nobody listens to this stream: its lines are left out.
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
