package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"time"

	"k8s.io/klog/v2"

	"keelson/internal/app"
	"keelson/internal/config"
)

// newLogger makes the one logger of the process, in the format of the
// configuration, and has the libraries that use klog write to it. What is logged
// follows level from then on.
func newLogger(w io.Writer, cfg *config.Config, level *slog.LevelVar) *slog.Logger {
	level.Set(app.Level(uint32(cfg.Kubelet.Logging.Verbosity)))
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: plainTime}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.Kubelet.Logging.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	} else if f, ok := w.(*os.File); ok && toJournal(f, os.Getenv("JOURNAL_STREAM")) {
		h = newJournalHandler(w, opts)
	}
	log := slog.New(h)
	klog.SetSlogLogger(log)
	return log
}

// logConfiguration says what is in force, for those who ask for much: verbosity 5.
func logConfiguration(log *slog.Logger, cfg *config.Config) {
	if level := app.Level(5); log.Enabled(context.Background(), level) {
		text, err := json.Marshal(cfg.Masked())
		log.Log(context.Background(), level, "effective configuration", "configuration", string(text), "err", err)
	}
}

// plainTime writes times to the millisecond: a journal adds its own.
func plainTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if d, ok := a.Value.Any().(time.Duration); ok {
		return slog.String(a.Key, d.Round(time.Millisecond).String())
	}
	return a
}
