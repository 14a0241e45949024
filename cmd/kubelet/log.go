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

	"keelson/internal/app"
	"keelson/internal/config"
)

// voice is the one log of the process.
type voice struct {
	*slog.Logger
	level slog.LevelVar
	held  *heldBack // nil: nothing is held back
	klog  *flag.FlagSet
}

// newVoice makes the log, in the format and to the streams of the configuration,
// and has the libraries that use klog write to it. It is to be closed.
func newVoice(out, errs io.Writer, cfg *config.Config) (*voice, error) {
	k := &cfg.Kubelet.Logging
	v := &voice{klog: flag.NewFlagSet("klog", flag.ContinueOnError)}
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
			v.held = holdBack(out, int(size), k.FlushFrequency.Duration.Duration)
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

// setVerbosity changes how much is said from now on, by the agent and by the
// libraries that it is made of.
func (v *voice) setVerbosity(n uint32) error {
	if err := v.klog.Set("v", strconv.FormatUint(uint64(min(n, 1<<31-1)), 10)); err != nil {
		return fmt.Errorf("set verbosity: %w", err)
	}
	v.level.Set(app.Level(n))
	return nil
}

// close writes what was held back.
func (v *voice) close() {
	if v.held != nil {
		v.held.close()
	}
}

// handlerFor writes lines of a format.
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

// vmodule is the list as klog's flag has it.
func vmodule(list logsapi.VModuleConfiguration) string {
	var items []string
	for _, m := range list {
		items = append(items, fmt.Sprintf("%s=%d", m.FilePattern, m.Verbosity))
	}
	return strings.Join(items, ",")
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
	if a.Key == slog.TimeKey && len(groups) == 0 && a.Value.Kind() == slog.KindTime {
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
	switch {
	case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime: // lines may tell of others
		return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
	case a.Key == slog.SourceKey:
		if src, ok := a.Value.Any().(*slog.Source); ok {
			return slog.String("caller", filepath.Base(filepath.Dir(src.File))+"/"+filepath.Base(src.File)+":"+strconv.Itoa(src.Line))
		}
	case a.Key == slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok && level <= slog.LevelInfo {
			return slog.Int("v", -int(level))
		}
	}
	return plainTime(groups, a)
}
