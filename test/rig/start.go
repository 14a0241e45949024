package rig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"keelson/test/kit/need"
	"keelson/test/parts"
)

// Options describe what Start starts.
type Options struct {
	Runtime *RuntimeConfig // the built runtime, if nil and not NoRuntime
	Cluster bool
	Kubelet *KubeletConfig // none if nil
	// NoRuntime is for kubelets whose endpoint is another runtime.
	NoRuntime bool
}

// Start opens a rig for a test, starts the parts that the options name, and removes everything when the test ends. If
// the test fails, the ends of the logs are printed. Without root the test is skipped.
func Start(t testing.TB, o Options) *Rig {
	t.Helper()
	need.Root(t, "running containers")
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r, err := Open(ctx, Config{Purpose: "test", Parts: b, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.ShowLogs(t)
		}
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if !o.NoRuntime {
		cfg := RuntimeConfig{}
		if o.Runtime != nil {
			cfg = *o.Runtime
		}
		if _, err := r.StartRuntime(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	if o.Cluster {
		if _, err := r.StartCluster(ctx, ClusterConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	if o.Kubelet != nil {
		if _, err := r.StartKubelet(ctx, *o.Kubelet); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// ShowLogs prints the end of every log. If KEELSON_RIG_LOGS names a folder, it also copies the whole logs there.
func (r *Rig) ShowLogs(t testing.TB) {
	t.Helper()
	for _, f := range named(r.Logs, "*.log") {
		p := process{log: f}
		t.Logf("end of %s:\n%s", filepath.Base(f), p.lastWords())
	}
	keep := os.Getenv("KEELSON_RIG_LOGS")
	if keep == "" {
		return
	}
	if err := os.MkdirAll(keep, 0o755); err != nil {
		t.Logf("cannot keep logs: %v", err)
		return
	}
	dst, err := r.KeepLogs(keep)
	if err != nil {
		t.Logf("cannot keep logs: %v", err)
		return
	}
	t.Logf("whole logs in %s", dst)
}

// KeepLogs copies all logs to a new folder that is kept when the rig is closed. The folder is made in dir, or in the
// temporary folder if dir is empty.
func (r *Rig) KeepLogs(dir string) (string, error) {
	dst, err := os.MkdirTemp(dir, "logs-of-"+r.Name+"-")
	if err != nil {
		return "", fmt.Errorf("keep logs: %w", err)
	}
	if err := os.CopyFS(filepath.Join(dst, "logs"), os.DirFS(r.Logs)); err != nil {
		return dst, fmt.Errorf("keep logs: %w", err)
	}
	return dst, nil
}

// OurKubelet compiles the project's kubelet into a folder and returns its path. If KEELSON_KUBELET names a binary,
// that is used instead.
func OurKubelet(ctx context.Context, dir string) (string, error) {
	if given := os.Getenv("KEELSON_KUBELET"); given != "" {
		return given, nil
	}
	checkout, err := parts.Checkout()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "kubelet")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", out, "./cmd/kubelet")
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if logged, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile kubelet: %w\n%s", err, logged)
	}
	return out, nil
}
