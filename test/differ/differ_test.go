package differ

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"keelson/test/parts"
	"keelson/test/rig"
)

// TestLives has both agents live the first plain pods of a seed, and stands for nothing but them:
// `make differ` lives through more.
func TestLives(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containers, mounts and bridges need root")
	}
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := rig.OurKubelet(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stage, err := Open(t.Context(), Config{Ours: ours, Parts: b, Out: t.Output(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stage.Close(); err != nil {
			t.Error(err)
		}
	})
	sum, err := stage.Run(t.Context(), Plan{Seed: 1, Pods: 40, Plain: true, Again: true, Within: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := sum.Print(t.Output()); err != nil {
		t.Fatal(err)
	}
	if len(sum.Groups) > 0 {
		t.Errorf("%d differences showed twice", len(sum.Groups))
	}
	if lived := sum.Pods - sum.Refused; lived < 30 {
		t.Errorf("%d pods lived, want 30 at least", lived)
	}
}
