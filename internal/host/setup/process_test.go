package setup

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"keelson/internal/config"
	"keelson/test/kit/parity"
)

// The OOM score and the cgroups of processes are written again every placeEvery: processes that another program
// has moved are moved back.
func TestPlaceIsRepeated(t *testing.T) {
	parity.ProvesPart(t, 4, "RES-18")
	parity.ProvesPart(t, 3, "CFG-41")
	synctest.Test(t, func(t *testing.T) {
		proc := t.TempDir()
		if err := os.Mkdir(filepath.Join(proc, "self"), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(proc, "self/oom_score_adj")
		times := 0
		p := NewProcess(ProcessConfig{
			Proc:        proc,
			OOMScoreAdj: -777,
			Place: func() error {
				times++
				return nil
			},
			Log: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		for want := 1; want <= 3; want++ {
			if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(placeEvery)
			synctest.Wait()
			if text, err := os.ReadFile(file); err != nil || string(text) != "-777" || times != want {
				t.Errorf("after %d rounds: %q, %v; processes were placed %d times", want, text, err, times)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLimitOfOpenFiles(t *testing.T) {
	parity.Proves(t, "CFG-67")
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	n := before.Max - 1
	if err := openFiles(n); err != nil {
		t.Fatal(err)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != n || now.Max != n {
		t.Errorf("limit %+v, %v, want %d", now, err, n)
	}
	before = now // raising a lowered hard limit needs a privilege
	if err := openFiles(0); err != nil {
		t.Error(err)
	}
	c, err := config.Load([]string{"--hostname-override=n1", "--config=testdata/plain.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Kubelet.MaxOpenFiles != 1000000 {
		t.Errorf("by default %d", c.Kubelet.MaxOpenFiles)
	}
}
