package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"keelson/internal/config"
	"keelson/test/kit/parity"
)

// newTestLog returns a log for the test. It is closed, and klog is reset, when the test ends.
func newTestLog(t *testing.T, out, errs io.Writer, cfg *config.Config) *processLog {
	t.Helper()
	v, err := newProcessLog(out, errs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.close()
		klog.ClearLogger()
		if err := v.klog.Set("vmodule", ""); err != nil {
			t.Error(err)
		}
	})
	return v
}

// The JSON format has the keys that log collectors for Kubernetes expect.
func TestJSONLogKeys(t *testing.T) {
	parity.ProvesPart(t, 5, "CFG-92")
	cfg := &config.Config{}
	cfg.Kubelet.Logging.Format = "json"
	cfg.Kubelet.Logging.Verbosity = 4
	var out bytes.Buffer
	log := newTestLog(t, io.Discard, &out, cfg)
	log.Info("listening", "took", 1500*time.Microsecond)
	log.Debug("step")
	log.Error("cannot stop", "err", errors.New("no"))
	var lines []map[string]any
	for text := range strings.Lines(out.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		ts, _ := line["ts"].(float64)
		if since := time.Since(time.UnixMilli(int64(ts))); since < 0 || since > time.Minute {
			t.Errorf("ts %v is not now in milliseconds", line["ts"])
		}
		if caller, _ := line["caller"].(string); !strings.HasPrefix(caller, "kubelet/log_test.go:") {
			t.Errorf("caller %q", caller)
		}
		lines = append(lines, line)
	}
	if len(lines) != 3 || lines[0]["v"] != 0.0 || lines[0]["msg"] != "listening" || lines[0]["took"] != "2ms" ||
		lines[0]["level"] != nil ||
		lines[1]["v"] != 4.0 || lines[2]["v"] != nil || lines[2]["level"] != "ERROR" || lines[2]["err"] != "no" {
		t.Errorf("%s", &out)
	}
}

// Attributes may have the keys of the built-in fields: time, level, msg, source.
func TestAttributesNamedAsBuiltinFields(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		cfg := &config.Config{}
		cfg.Kubelet.Logging.Format = format
		var out bytes.Buffer
		log := newTestLog(t, io.Discard, &out, cfg)
		log.Warn("late", "time", 5*time.Second, "level", 3, "msg", 7, "source", 9)
		if !strings.Contains(out.String(), "5s") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

// Errors are written to one stream and other records to another, in both formats.
func TestSplitStreams(t *testing.T) {
	parity.ProvesPart(t, 5, "CFG-92")
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			cfg := &config.Config{}
			l := &cfg.Kubelet.Logging
			l.Format = format
			routing := logsapi.OutputRoutingOptions{SplitStream: true}
			l.Options.Text.OutputRoutingOptions, l.Options.JSON.OutputRoutingOptions = routing, routing
			var out, errs bytes.Buffer
			log := newTestLog(t, &out, &errs, cfg)
			log.Info("news")
			log.Warn("odd")
			log.Error("wrong")
			klog.ErrorS(nil, "library is wrong")
			klog.InfoS("library has news")
			if s := out.String(); !strings.Contains(s, "news") || !strings.Contains(s, "odd") ||
				!strings.Contains(s, "library has news") || strings.Contains(s, "wrong") {
				t.Errorf("one stream has:\n%s", s)
			}
			if s := errs.String(); strings.Count(s, "\n") != 2 || !strings.Contains(s, "wrong") ||
				!strings.Contains(s, "library is wrong") {
				t.Errorf("the other has:\n%s", s)
			}
		})
	}
}

// Buffered lines are written when the buffer is full, after the flush period, and when the log is
// closed.
func TestBufferedLines(t *testing.T) {
	parity.ProvesPart(t, 5, "CFG-92")
	var mu sync.Mutex
	var out bytes.Buffer
	seen := func() string {
		mu.Lock()
		defer mu.Unlock()
		return out.String()
	}
	synctest.Test(t, func(t *testing.T) {
		h := newBufferedWriter(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(b)
		}), 10, 5*time.Second)
		write := func(line string) {
			t.Helper()
			if n, err := h.Write([]byte(line)); n != len(line) || err != nil {
				t.Errorf("%q: %d, %v", line, n, err)
			}
		}
		write("one\n")
		write("two\n")
		if got := seen(); got != "" {
			t.Errorf("written at once: %q", got)
		}
		write("three\n") // does not fit any more: lines stay whole
		if got := seen(); got != "one\ntwo\n" {
			t.Errorf("when there is enough: %q", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := seen(); got != "one\ntwo\nthree\n" {
			t.Errorf("when the time has come: %q", got)
		}
		write("four\n")
		h.close()
		if got := seen(); got != "one\ntwo\nthree\nfour\n" {
			t.Errorf("at the end: %q", got)
		}
	})
}

// A stream that could not be written to is used again when it can be. The loss of buffered lines is
// returned as the error of the next Write.
func TestBufferedLinesAfterFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		var broken error
		var out bytes.Buffer
		h := newBufferedWriter(writerFunc(func(b []byte) (int, error) {
			if broken != nil {
				return 0, broken
			}
			return out.Write(b)
		}), 10, 5*time.Second)
		write := func(line string, want error) {
			t.Helper()
			if _, err := h.Write([]byte(line)); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%q: %v, want %v", line, err, want)
			}
		}
		set := func(err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			broken = err
		}
		write("one\n", nil)
		set(full)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		write("two\n", full) // the error of the line before
		write("three is too long\n", full)
		set(nil)
		write("four\n", nil)
		h.close()
		if got := out.String(); got != "four\n" {
			t.Errorf("written: %q", got)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Source files may have their own verbosity, by file name or by pattern. The first pattern that
// matches is used.
func TestVModule(t *testing.T) {
	parity.ProvesPart(t, 5, "CFG-92")
	for pattern, want := range map[string]string{
		"":         "0",
		"log_test": "0 2 4",
		"log_*":    "0 2 4",
		"other":    "0",
		"l?g":      "0",
	} {
		cfg := &config.Config{}
		cfg.Kubelet.Logging.Format = "text"
		if pattern != "" {
			cfg.Kubelet.Logging.VModule = logsapi.VModuleConfiguration{
				{FilePattern: pattern, Verbosity: 4},
				{FilePattern: "*_test", Verbosity: 0},
			}
		}
		var out bytes.Buffer
		log := newTestLog(t, io.Discard, &out, cfg).With("part", "x")
		for _, v := range []uint32{0, 2, 4, 6} {
			log.Log(t.Context(), config.LogLevel(v), fmt.Sprintf("own %d.", v))
			klog.V(klog.Level(v)).InfoS(fmt.Sprintf("library %d.", v))
		}
		var own, library []string
		for _, m := range regexp.MustCompile(`(own|library) (\d)\.`).FindAllStringSubmatch(out.String(), -1) {
			if m[1] == "own" {
				own = append(own, m[2])
			} else {
				library = append(library, m[2])
			}
		}
		if strings.Join(own, " ") != want || strings.Join(library, " ") != want {
			t.Errorf("%q: own %v, libraries' %v, want %s:\n%s", pattern, own, library, want, &out)
		}
	}
}

// The verbosity also applies to klog, which libraries use, and to later changes.
func TestVerbosityOfLibraries(t *testing.T) {
	cfg := &config.Config{}
	cfg.Kubelet.Logging.Verbosity = 2
	var out bytes.Buffer
	log := newTestLog(t, io.Discard, &out, cfg)
	speak := func() string {
		out.Reset()
		for _, v := range []uint32{0, 2, 4} {
			log.Log(t.Context(), config.LogLevel(v), fmt.Sprintf("o%d", v))
			klog.V(klog.Level(v)).InfoS(fmt.Sprintf("l%d", v))
		}
		return strings.Join(regexp.MustCompile(`\b[ol]\d`).FindAllString(out.String(), -1), " ")
	}
	if got := speak(); got != "o0 l0 o2 l2" {
		t.Errorf("at two: %s", got)
	}
	for v, want := range map[uint32]string{4: "o0 l0 o2 l2 o4 l4", 0: "o0 l0"} {
		if err := log.setVerbosity(v); err != nil {
			t.Fatal(err)
		}
		if got := speak(); got != want {
			t.Errorf("at %d: %s", v, got)
		}
	}
}
