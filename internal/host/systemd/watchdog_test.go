package systemd

import (
	"strings"
	"testing"
	"time"

	"keelson/test/kit/parity"
)

func TestShortWatchdogIsRefused(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-05")
	for usec, want := range map[string]time.Duration{
		"":         0,
		"1000001":  1000001 * time.Microsecond,
		"30000000": 30 * time.Second,
		"1000000":  -1,
		"1":        -1,
		"many":     -1,
		"0":        -1,
	} {
		t.Setenv("WATCHDOG_USEC", usec)
		got, err := WatchdogTimeout()
		if want == -1 {
			if err == nil || !strings.Contains(err.Error(), "watchdog") {
				t.Errorf("WATCHDOG_USEC=%s: %v, %v, want an error", usec, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("WATCHDOG_USEC=%s: %v, %v, want %v", usec, got, err, want)
		}
	}
}
