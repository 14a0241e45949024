package node

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

// TestUpdateInterval: the status is computed every UpdateEvery with up to 4% jitter, and sent if it has changed. Leases
// are renewed with the same jitter.
func TestUpdateInterval(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-12")
	parity.ProvesPart(t, 5, "NODE-40")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var computed []time.Time
		var volumes []v1.UniqueVolumeName
		r := run(t, newServer(), func(c *Config, _ *rig) {
			c.Devices = func() Devices {
				mu.Lock()
				defer mu.Unlock()
				computed = append(computed, time.Now())
				return Devices{}
			}
			c.VolumesInUse = func() []v1.UniqueVolumeName {
				mu.Lock()
				defer mu.Unlock()
				return volumes
			}
		})
		defer r.stop()
		pass(15 * time.Second)
		mu.Lock()
		computed = nil
		mu.Unlock()
		r.api.set(func(f *fakeServer) { f.renewals = nil })
		pass(20 * time.Minute)
		within := func(what string, times []time.Time) {
			t.Helper()
			if len(times) < 115 {
				t.Errorf("%s %d times in 20 minutes", what, len(times))
			}
			var least, most time.Duration = time.Hour, 0
			for i := 1; i < len(times); i++ {
				gap := times[i].Sub(times[i-1])
				least, most = min(least, gap), max(most, gap)
			}
			if least < 10*time.Second || most > 10400*time.Millisecond || most-least < 200*time.Millisecond {
				t.Errorf("%s %v to %v apart, want 10 s to 10.4 s, and not all the same", what, least, most)
			}
		}
		mu.Lock()
		within("computed", computed)
		mu.Unlock()
		r.api.mu.Lock()
		within("renewed", r.api.renewals)
		r.api.mu.Unlock()
		before := r.api.count("patch status")
		mu.Lock()
		volumes = []v1.UniqueVolumeName{"a"}
		mu.Unlock()
		pass(10400 * time.Millisecond)
		if n := r.api.count("patch status") - before; n != 1 {
			t.Errorf("%d patches within one round of a change", n)
		}
	})
}

// TestFirstReadyIsReportedAtOnce: until the node is Ready for the first time, for two
// minutes at most, the runtime's status is read ten times a second, and the node status
// is sent as soon as the runtime is ready.
func TestFirstReadyIsReportedAtOnce(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-15")
	for _, tc := range []struct {
		up     time.Duration // after the start
		within time.Duration
		asked  int32 // at least, in the ten seconds before
	}{
		{90 * time.Second, 150 * time.Millisecond, 99},
		{130 * time.Second, 1100 * time.Millisecond, 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, newServer(), func(_ *Config, r *rig) { r.runtime.down = true })
			defer r.stop()
			pass(tc.up - 10*time.Second)
			before := r.runtime.asked.Load()
			pass(10 * time.Second)
			if n := r.runtime.asked.Load() - before; n < tc.asked || n > 2*tc.asked {
				t.Errorf("up to %v: asked %d times in ten seconds, want %d", tc.up, n, tc.asked)
			}
			if c := readyOf(r.api.snapshot()); c.Status != v1.ConditionFalse {
				t.Errorf("up to %v: Ready = %+v", tc.up, c)
			}
			r.runtime.set(false)
			pass(tc.within)
			if c := readyOf(r.api.snapshot()); c.Status != v1.ConditionTrue {
				t.Errorf("%v after the runtime came up at %v: Ready = %+v", tc.within, tc.up, c)
			}
		})
	}
}

// TestReportDelayIsRandom: agents that were all updated at the same time do not continue to report at the same time.
func TestReportDelayIsRandom(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-14")
	seen := map[time.Duration]bool{}
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			api := newServer()
			first := run(t, api, nil)
			pass(20 * time.Minute)
			first.stop()
			api.set(func(f *fakeServer) { f.calls, f.times = nil, nil })
			second := run(t, api, nil)
			defer second.stop()
			pass(20 * time.Minute)
			gaps := api.gaps("patch status")
			if len(gaps) < 2 {
				t.Fatalf("reports %v apart", gaps)
			}
			if gaps[0] < 150*time.Second || gaps[0] > 461*time.Second || gaps[1] < 300*time.Second ||
				gaps[1] > 311*time.Second {
				t.Errorf("reports %v apart, want 2.5 to 7.5 minutes and then 5", gaps)
			}
			seen[gaps[0].Round(10*time.Second)] = true
		})
	}
	if len(seen) < 3 {
		t.Errorf("eight agents waited %v for their second report", seen)
	}
}
