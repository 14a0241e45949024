package panics

import (
	"log/slog"
	"time"

	"keelson/internal/host/clock"
)

const (
	firstPause = time.Second
	maxPause   = 5 * time.Minute
)

// After calls f once after d, as [time.AfterFunc] does. A panic in f is logged and counted, and f is not called
// again.
func After(log *slog.Logger, part string, d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { _ = tryAll(log, part, f) }) // logged and counted; no caller waits
}

// Again is [After] for work that must not be lost: if f panics, it is called again after a second, and then with a
// doubling back-off of up to five minutes. f may be called once more after its timer was stopped, and has to check
// whether its work is still needed.
func Again(log *slog.Logger, part string, d time.Duration, f func()) *time.Timer {
	backoff := clock.Backoff(firstPause, maxPause)
	var timer *time.Timer
	set := make(chan struct{}) // closed when timer is set: d may be over before that
	timer = time.AfterFunc(d, func() {
		if tryAll(log, part, f) == nil {
			return
		}
		<-set
		timer.Reset(backoff.Step())
	})
	close(set)
	return timer
}

func tryAll(log *slog.Logger, part string, f func()) error {
	return Try(log, part, func() error {
		f()
		return nil
	})
}
