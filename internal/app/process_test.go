package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/parity"
)

// Where processes are is looked after now and then: they are put back where somebody
// has moved them, and the kernel is told again to spare the agent.
func TestPlacesAreLookedAfter(t *testing.T) {
	parity.ProvesPart(t, 4, "RES-18")
	parity.ProvesPart(t, 3, "CFG-41")
	synctest.Test(t, func(t *testing.T) {
		proc := t.TempDir()
		if err := os.Mkdir(filepath.Join(proc, "self"), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(proc, "self/oom_score_adj")
		k := &configured(t, "oomScoreAdj: -777").Kubelet
		times := 0
		groups := func(got *v1beta1.KubeletConfiguration) error {
			if got != k {
				t.Error("the configuration is another")
			}
			times++
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- keepPlace(k, proc, groups, slog.New(slog.DiscardHandler))(ctx) }()
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
