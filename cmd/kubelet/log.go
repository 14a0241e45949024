package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
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
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: jsonKeys, AddSource: true})
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

// jsonKeys says the same under the keys that readers of Kubernetes' logs know: ts
// in milliseconds, caller, msg, and v for how much is said. What is a warning or an
// error has a level beside, and no v.
func jsonKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return plainTime(groups, a)
	}
	switch a.Key {
	case slog.TimeKey:
		return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
	case slog.SourceKey:
		if src, ok := a.Value.Any().(*slog.Source); ok {
			return slog.String("caller", filepath.Base(filepath.Dir(src.File))+"/"+filepath.Base(src.File)+":"+strconv.Itoa(src.Line))
		}
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok && level <= slog.LevelInfo {
			return slog.Int("v", -int(level))
		}
	}
	return plainTime(groups, a)
}
