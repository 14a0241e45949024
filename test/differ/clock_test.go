package differ

import (
	"testing"
	"time"
)

func TestTheClockIsSlowOnABusyMachine(t *testing.T) {
	wall, waited := time.Unix(1000, 0), time.Duration(0)
	c := &clock{wall: func() time.Time { return wall }, waiting: func() time.Duration { return waited }, speed: 1}
	last := c.now()
	for _, tc := range []struct{ passes, waits, want time.Duration }{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 5 * time.Second, 10 * time.Second},
		{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}, // not looked at yet
		{9900 * time.Millisecond, 7400 * time.Millisecond, 4900 * time.Millisecond},
		{10 * time.Second, 10 * time.Second, time.Second},
		{10 * time.Second, 0, 10 * time.Second},
	} {
		wall, waited = wall.Add(tc.passes), waited+tc.waits
		now := c.now()
		if got := now - last; got < tc.want-time.Millisecond || got > tc.want+time.Millisecond {
			t.Errorf("%v pass, of which tasks wait for %v: the clock says %v, want %v", tc.passes, tc.waits, got,
				tc.want)
		}
		last = now
	}
}
