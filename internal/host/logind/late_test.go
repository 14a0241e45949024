package logind

import (
	"context"
	"testing"
	"time"

	"keelson/test/kit/logind"
)

// TestLateInhibitorLock cancels the request for a lock at about the moment when it is granted, and
// closes the connection. No lock is held then, regardless of which of the two came first.
func TestLateInhibitorLock(t *testing.T) {
	bus := logind.StartBus(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.Address)
	m := logind.Start(t, bus, time.Minute)
	for range 100 {
		s, err := Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		asked := len(m.Calls())
		go func() {
			defer cancel()
			m.Until(t, "a lock asked for", func() bool { return len(m.Calls()) > asked })
		}()
		lock, err := s.Delay(ctx)
		if err == nil {
			lock.Close()
		}
		<-ctx.Done()
		s.Close()
		m.Await(t, 0)
	}
}
