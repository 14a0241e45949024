package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"keelson/internal/config"
)

// processLog is the log of the process.
type processLog struct {
	*slog.Logger
	level slog.LevelVar
	held  *bufferedWriter // nil: unbuffered
	klog  *flag.FlagSet
}

// newProcessLog makes the log, in the format and to the streams of the configuration, and
// redirects klog to it. The caller closes it.
func newProcessLog(out, errs io.Writer, cfg *config.Config) (*processLog, error) {
	k := &cfg.Kubelet.Logging
	v := &processLog{klog: flag.NewFlagSet("klog", flag.ContinueOnError)}
	klog.InitFlags(v.klog)
	if err := v.setVerbosity(uint32(k.Verbosity)); err != nil {
		return nil, err
	}
	var level slog.Leveler = &v.level
	if len(k.VModule) > 0 {
		level = everything
	}
	routing := k.Options.Text.OutputRoutingOptions
	if k.Format == "json" {
		routing = k.Options.JSON.OutputRoutingOptions
	}
	h := handlerFor(errs, k.Format, level)
	if routing.SplitStream {
		if size := routing.InfoBufferSize.Value(); size > 0 {
			v.held = newBufferedWriter(out, int(size), k.FlushFrequency.Duration.Duration)
			out = v.held
		}
		h = splitHandler{errors: h, rest: handlerFor(out, k.Format, level)}
	}
	if len(k.VModule) > 0 {
		if err := v.klog.Set("vmodule", vmodule(k.VModule)); err != nil {
			return nil, fmt.Errorf("set logging.vmodule: %w", err)
		}
		h = byFile{Handler: h, level: &v.level, files: k.VModule}
	}
	v.Logger = slog.New(h)
	klog.SetSlogLogger(v.Logger)
	return v, nil
}

// setVerbosity sets the log level of the agent and of klog.
func (v *processLog) setVerbosity(n uint32) error {
	if err := v.klog.Set("v", strconv.FormatUint(uint64(min(n, 1<<31-1)), 10)); err != nil {
		return fmt.Errorf("set verbosity: %w", err)
	}
	v.level.Set(config.LogLevel(n))
	return nil
}

// close flushes the buffer.
func (v *processLog) close() {
	if v.held != nil {
		v.held.close()
	}
}

// handlerFor returns a handler for a log format.
func handlerFor(w io.Writer, format string, level slog.Leveler) slog.Handler {
	if format == "json" {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: jsonKeys, AddSource: true})
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: plainTime}
	if f, ok := w.(*os.File); ok && toJournal(f, os.Getenv("JOURNAL_STREAM")) {
		return newJournalHandler(w, opts)
	}
	return slog.NewTextHandler(w, opts)
}

// vmodule formats the list for klog's flag.
func vmodule(list logsapi.VModuleConfiguration) string {
	var items []string
	for _, m := range list {
		items = append(items, fmt.Sprintf("%s=%d", m.FilePattern, m.Verbosity))
	}
	return strings.Join(items, ",")
}

// logConfiguration logs the effective configuration at verbosity 5.
func logConfiguration(log *slog.Logger, cfg *config.Config) {
	if level := config.LogLevel(5); log.Enabled(context.Background(), level) {
		text, err := json.Marshal(cfg.Masked())
		log.Log(context.Background(), level, "effective configuration", "configuration", string(text), "err", err)
	}
}

// plainTime truncates times to the millisecond.
func plainTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 && a.Value.Kind() == slog.KindTime {
		return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if d, ok := a.Value.Any().(time.Duration); ok {
		return slog.String(a.Key, d.Round(time.Millisecond).String())
	}
	return a
}

// jsonKeys renames attributes to those of upstream's JSON format: ts in milliseconds,
// caller, msg, and v for the verbosity. Warnings and errors have a level in place of v.
func jsonKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return plainTime(groups, a)
	}
	switch {
	case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime: // not an attribute of the line
		return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
	case a.Key == slog.SourceKey:
		if src, ok := a.Value.Any().(*slog.Source); ok {
			return slog.String("caller",
				filepath.Base(filepath.Dir(src.File))+"/"+filepath.Base(src.File)+":"+strconv.Itoa(src.Line))
		}
	case a.Key == slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok && level <= slog.LevelInfo {
			return slog.Int("v", -int(level))
		}
	}
	return plainTime(groups, a)
}
