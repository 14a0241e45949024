package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Limit is how long True and Until wait. It is not a requirement on speed: the machine may be busy.
const Limit = time.Minute

// True waits until the condition holds.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Limit, 2*time.Millisecond, what, func() (string, bool) { return "", ok() })
}

// Until waits until look reports true. Look also returns what it saw.
func Until(t testing.TB, what string, look func() (saw string, ok bool)) {
	t.Helper()
	Within(t, Limit, 2*time.Millisecond, what, look)
}

// Within is Until with a limit and a pause between two looks.
func Within(t testing.TB, limit, pause time.Duration, what string, look func() (saw string, ok bool)) {
	t.Helper()
	// Cleanups wait too, when the context of the test has ended.
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	if err := Poll(ctx, pause, look); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// Poll is Within for code without a testing.TB. The error is the cause of the context's end, with what look
// saw last.
func Poll(ctx context.Context, pause time.Duration, look func() (saw string, ok bool)) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		saw, ok := look()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if saw == "" {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w; last seen: %s", context.Cause(ctx), saw)
		case <-timer.C:
			timer.Reset(pause)
		}
	}
}
