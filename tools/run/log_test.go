package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFollower writes lines as the kubelet does and checks which sentences are shown.
func TestFollower(t *testing.T) {
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, nil))
	l.Info("container runtime answers", "runtime", "containerd")
	l.Error("invalid manifest",
		"file",
		"/rig/manifests/web.yaml", "err", errors.New(`spec.containers[0].image: Required value`), "keepsLastGood", true)
	l.Warn("event", "reason", "FailedValidation", "message", "the same once more")
	l.Warn("event", "pod", "default/web", "uid", "1", "reason", "BackOff", "message", "in the status too")
	l.Warn("event", "pod", "default/web", "uid", "1", "reason", "FailedMount", "message", `no "x" = y`)
	l.Warn("event", "pod", "default/web", "uid", "1", "reason", "Unhealthy", "message", "passed over")

	file := filepath.Join(t.TempDir(), "kubelet.log")
	f := &follower{file: file, logged: map[string]bool{}, passOver: func(pod, reason string) bool {
		return pod == "web" &&
			reason == "Unhealthy"
	},
		replace: strings.NewReplacer("/rig/manifests", "examples")}
	cut := log.Len() - 10 // the last line is not whole yet
	if err := os.WriteFile(file, log.Bytes()[:cut], 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kubelet: invalid manifest, file examples/web.yaml: spec.containers[0].image: Required value" +
			"; the pod keeps running with its last valid manifest",
		`web: FailedMount: no "x" = y`,
	}
	if got, err := f.more(); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	l.Warn("event", "pod", "default/web", "uid", "1", "reason", "FailedMount", "message", `no "x" = y`)
	l.Warn("something else", "n", 1)
	if err := os.WriteFile(file, log.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := f.more(); err != nil || !slices.Equal(got, []string{"kubelet: something else, n 1"}) {
		t.Errorf("got %q, %v; want the new line alone", got, err)
	}
}

// TestFollowerHidesGrowingPause: a warning that is repeated with a longer pause each time is shown once.
func TestFollowerHidesGrowingPause(t *testing.T) {
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, nil))
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		l.Warn("failed to register plugin", "path", "a.sock", "retryAfter", pause, "err", errors.New("timeout"))
	}
	file := filepath.Join(t.TempDir(), "kubelet.log")
	if err := os.WriteFile(file, log.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	f := &follower{file: file, logged: map[string]bool{}, replace: strings.NewReplacer()}
	want := []string{"kubelet: failed to register plugin, path a.sock: timeout"}
	if got, err := f.more(); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}
