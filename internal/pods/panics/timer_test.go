package panics

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		var calls []time.Duration
		start := time.Now()
		bad := func(times int) func() {
			return func() {
				calls = append(calls, time.Since(start))
				if len(calls) <= times {
					panic("not now")
				}
			}
		}
		After(logger, "timers", time.Minute, bad(1))
		time.Sleep(time.Hour)
		if !slices.Equal(calls, []time.Duration{time.Minute}) {
			t.Errorf("called at %v", calls)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "TestTimers") {
			t.Errorf("logged %s", text)
		}

		calls, start = nil, time.Now()
		Again(logger, "timers", 0, bad(3))
		time.Sleep(time.Hour)
		if !slices.Equal(calls, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}) {
			t.Errorf("after panics it is called at %v", calls)
		}

		calls, start = nil, time.Now()
		timer := Again(logger, "timers", time.Second, bad(100))
		time.Sleep(time.Hour)
		n := len(calls)
		if n < 15 || calls[n-1]-calls[n-2] != 5*time.Minute {
			t.Errorf("called at %v", calls)
		}
		timer.Stop()
		time.Sleep(time.Hour)
		if len(calls) != n {
			t.Errorf("called %d times after the timer was stopped", len(calls)-n)
		}
	})
}
