package reload

import (
	"log/slog"
	"testing"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/test/kit/parity"
)

func TestVerbosityIsReloaded(t *testing.T) {
	parity.ProvesPart(t, 3, "SRV-29")
	var level slog.LevelVar
	set := New(Config{
		Start: &v1beta1.KubeletConfiguration{},
		Verbose: func(v uint32) error {
			level.Set(config.LogLevel(v))
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	}).SetVerbosity
	if logged, err := set("4"); err != nil || logged != "successfully set klog.logging.verbosity to 4" ||
		level.Level() != slog.LevelDebug {
		t.Errorf("%q, %v, level %v", logged, err, level.Level())
	}
	for _, text := range []string{"", "-1", "many", "4294967296", "4; rm"} {
		if logged, err := set(text); err == nil || level.Level() != slog.LevelDebug {
			t.Errorf("%q: %q, level %v", text, logged, level.Level())
		}
	}
	if _, err := set("0"); err != nil || level.Level() != slog.LevelInfo {
		t.Errorf("back: %v, level %v", err, level.Level())
	}
}
