package main

import (
	"io"
	"log/slog"
	"time"

	"k8s.io/klog/v2"

	"keelson/internal/config"
)

// newLogger makes the one logger of the process, in the format of the
// configuration, and has the libraries that use klog write to it.
func newLogger(w io.Writer, cfg *config.Config) *slog.Logger {
	// A verbosity of four is slog's debug level, two lies half way.
	opts := &slog.HandlerOptions{Level: slog.Level(-int(cfg.Kubelet.Logging.Verbosity)), ReplaceAttr: plainTime}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.Kubelet.Logging.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	log := slog.New(h)
	klog.SetSlogLogger(log)
	return log
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
