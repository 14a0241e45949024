package podsync

import (
	"log/slog"
	"testing"
	"time"
)

// Who ends a pod waits until it has made room. One that nobody looks after has, and
// is not waited for.
func TestAPodThatNobodyLooksAfterIsNotWaitedFor(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	select {
	case <-s.Evict("gone", Eviction{Message: "The node was low on resource: memory. "}):
	case <-time.After(time.Minute):
		t.Error("it is waited for")
	}
}
