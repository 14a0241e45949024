package container

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// together lets n calls go that end together, and returns how many were there at
// most before that.
func together(t *testing.T, turns *turns, n int, each time.Duration) (most int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := inTurn(t.Context(), turns, runSandbox, rank{}, func() (struct{}, error) { time.Sleep(each); return struct{}{}, nil }); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(each - time.Millisecond)
	turns.mu.Lock()
	most = turns.here
	turns.mu.Unlock()
	all.Wait()
	return most
}

// TestIdleProcessorsLetTheFirstCallsGo: before any call came back, those go for which
// the processors have time.
func TestIdleProcessorsLetTheFirstCallsGo(t *testing.T) {
	const each = 130 * time.Millisecond
	for name, c := range map[string]struct {
		idle func(since time.Duration) time.Duration
		want int
	}{
		"nothing to do":                {func(d time.Duration) time.Duration { return 2 * d }, 100},
		"busy for 60 ms, then no more": {func(d time.Duration) time.Duration { return 2 * max(0, d-60*time.Millisecond) }, 100},
		"half busy at first":           {func(d time.Duration) time.Duration { return min(d, 40*time.Millisecond) }, 4 * begun},
		"busy":                         {func(time.Duration) time.Duration { return 0 }, begun},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				turns := newTurns(func() (idle, all time.Duration, err error) {
					d := time.Since(begin)
					return time.Minute + c.idle(d), time.Hour + 2*d, nil
				})
				if got := together(t, turns, 100, each); got != c.want {
					t.Errorf("%d calls before the first came back, want %d", got, c.want)
				}
			})
		})
	}
}

// TestTheLookEnds: whatever becomes of the calls, the processors are read for a
// moment only, and once in the runtime's life.
func TestTheLookEnds(t *testing.T) {
	for name, c := range map[string]struct {
		each   time.Duration
		failed error
		reads  int
	}{
		"calls come back": {each: 3*lookPeriod - 10*time.Millisecond, reads: 4}, // the last one sees that they did
		"calls hang":      {each: 4 * time.Second, reads: int(lookFor/lookPeriod) + 2},
		"nobody tells":    {each: 4 * time.Second, failed: errors.New("no such file"), reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				turns := newTurns(func() (idle, all time.Duration, err error) {
					reads++
					return 0, time.Duration(reads) * time.Second, c.failed
				})
				for range 2 {
					together(t, turns, 2*begun, c.each)
					time.Sleep(time.Minute)
				}
				if reads != c.reads {
					t.Errorf("the processors were read %d times, want %d", reads, c.reads)
				}
			})
		})
	}
}
