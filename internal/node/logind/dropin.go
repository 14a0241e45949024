package logind

import (
	"fmt"
	"os"
	"time"

	"keelson/internal/node/checkpoint"
)

// DropInText is the file that has the login manager wait at least this long. Part
// of a second would be lost on it, so there is none.
func DropInText(delay time.Duration) string {
	return fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%.0f\n", (delay + time.Second - 1).Truncate(time.Second).Seconds())
}

// Allow writes down, among the settings in dir, that the login manager may wait this
// long. They count once it has read them again.
func Allow(dir string, delay time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("let the login manager wait: %w", err)
	}
	if err := checkpoint.Put(DropIn(dir), []byte(DropInText(delay)), checkpoint.How{Mode: 0o644}); err != nil {
		return fmt.Errorf("let the login manager wait: %w", err)
	}
	return nil
}
