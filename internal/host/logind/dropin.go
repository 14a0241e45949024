package logind

import (
	"fmt"
	"os"
	"time"

	"keelson/internal/host/checkpoint"
)

// DropInText returns the drop-in with this maximum delay, rounded up to seconds.
func DropInText(delay time.Duration) string {
	return fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%.0f\n",
		(delay + time.Second - 1).Truncate(time.Second).Seconds())
}

// Allow writes the drop-in in dir with this maximum delay. It becomes effective when logind reloads its configuration.
func Allow(dir string, delay time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("increase maximum delay of logind: %w", err)
	}
	if err := checkpoint.Put(DropIn(dir), []byte(DropInText(delay)), checkpoint.How{Mode: 0o644}); err != nil {
		return fmt.Errorf("increase maximum delay of logind: %w", err)
	}
	return nil
}
