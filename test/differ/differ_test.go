package differ

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"keelson/test/kit/need"
	"keelson/test/parts"
	"keelson/test/rig"
)

// TestLives compares both agents on the first plain pods of a seed. `make differ` compares more
// pods, and pods of all features.
func TestLives(t *testing.T) {
	live(t, false, Plan{Seed: 1, Pods: 40, Plain: true, Again: true, Within: 2 * time.Minute}, 30)
}

// TestRealLives compares them on containerd, with interludes that kill the agent and containerd.
func TestRealLives(t *testing.T) {
	live(t, true, Plan{Seed: 151, Pods: 5, Again: true}, 5)
}

// live runs a plan. It fails if a difference shows twice, or if fewer pods than wanted were compared.
func live(t *testing.T, onReal bool, plan Plan, want int) {
	need.Root(t, "running containers")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Skip(t, "this machine has no loop devices", err)
	}
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := rig.OurKubelet(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stage, err := Open(t.Context(), Config{
		Ours:  ours,
		Parts: b,
		Real:  onReal,
		Out:   t.Output(),
		Log:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stage.Close(); err != nil {
			t.Error(err)
		}
	})
	sum, err := stage.Run(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := sum.Print(t.Output()); err != nil {
		t.Fatal(err)
	}
	if len(sum.Groups) > 0 {
		t.Errorf("%d differences showed twice", len(sum.Groups))
	}
	if lived := sum.Pods - sum.Refused; lived < want {
		t.Errorf("%d pods lived, want %d at least", lived, want)
	}
}
