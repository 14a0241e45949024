package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// toJournal reports whether f is connected to systemd's journal, by the environment
// variable JOURNAL_STREAM.
func toJournal(f *os.File, stream string) bool {
	var dev, ino uint64
	if n, err := fmt.Sscanf(stream, "%d:%d", &dev, &ino); n != 2 || err != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && uint64(st.Dev) == dev && st.Ino == ino
}

// journalHandler prefixes lines with their syslog priority, which the journal evaluates,
// and omits the time, which the journal adds.
type journalHandler struct{ byPriority [4]slog.Handler } // error, warning, info, debug

// priorities are those of syslog, in the order of journalHandler's.
var priorities = [4]string{"<3>", "<4>", "<6>", "<7>"}

func newJournalHandler(w io.Writer, opts *slog.HandlerOptions) slog.Handler {
	plain := *opts
	plain.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return plainTime(groups, a)
	}
	var h journalHandler
	for i, p := range priorities {
		h.byPriority[i] = slog.NewTextHandler(prefixed{w, p}, &plain)
	}
	return h
}

func (h journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.byPriority[0].Enabled(ctx, l)
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	i := 3
	switch {
	case r.Level >= slog.LevelError:
		i = 0
	case r.Level >= slog.LevelWarn:
		i = 1
	case r.Level >= slog.LevelInfo:
		i = 2
	}
	return h.byPriority[i].Handle(ctx, r)
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range h.byPriority {
		h.byPriority[i] = h.byPriority[i].WithAttrs(attrs)
	}
	return h
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	for i := range h.byPriority {
		h.byPriority[i] = h.byPriority[i].WithGroup(name)
	}
	return h
}

// prefixed writes each line in one call, so that lines of two priorities do not mix.
type prefixed struct {
	w      io.Writer
	prefix string
}

func (p prefixed) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
