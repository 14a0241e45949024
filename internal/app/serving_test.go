package app

import (
	"log/slog"
	"testing"

	"keelson/test/kit/parity"
)

func TestVerbosityIsSetWhileTheAgentRuns(t *testing.T) {
	parity.ProvesPart(t, 3, "SRV-29")
	var level slog.LevelVar
	a := &agent{log: slog.New(slog.DiscardHandler), links: Links{Operator: Operator{Verbosity: func(v uint32) error {
		level.Set(Level(v))
		return nil
	}}}}
	set := a.setVerbosity
	if said, err := set("4"); err != nil || said != "successfully set klog.logging.verbosity to 4" || level.Level() != slog.LevelDebug {
		t.Errorf("%q, %v, level %v", said, err, level.Level())
	}
	for _, text := range []string{"", "-1", "many", "4294967296", "4; rm"} {
		if said, err := set(text); err == nil || level.Level() != slog.LevelDebug {
			t.Errorf("%q: %q, level %v", text, said, level.Level())
		}
	}
	if _, err := set("0"); err != nil || level.Level() != slog.LevelInfo {
		t.Errorf("back: %v, level %v", err, level.Level())
	}
}
