package container

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// together makes n calls that end together, and returns how many were active at most before that.
func together(t *testing.T, queue *callQueue, n int, each time.Duration) (most int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := inQueue(t.Context(), queue, runSandbox, rank{},
				func() (struct{}, error) { time.Sleep(each); return struct{}{}, nil }); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(each - time.Millisecond)
	queue.mu.Lock()
	most = queue.active
	queue.mu.Unlock()
	all.Wait()
	return most
}

// TestIdleCPUsRaiseInitialLimit: before any call has completed, the limit follows the idle share of
// the CPUs.
func TestIdleCPUsRaiseInitialLimit(t *testing.T) {
	const each = 130 * time.Millisecond
	for name, c := range map[string]struct {
		idle func(since time.Duration) time.Duration
		want int
	}{
		"nothing to do": {func(d time.Duration) time.Duration { return 2 * d }, 100},
		"busy for 60 ms, then no more": {
			func(d time.Duration) time.Duration { return 2 * max(0, d-60*time.Millisecond) },
			100,
		},
		"half busy at first": {func(d time.Duration) time.Duration { return min(d, 40*time.Millisecond) },
			4 * initialLimit},
		"busy": {func(time.Duration) time.Duration { return 0 }, initialLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				queue := newCallQueue(func() (idle, all time.Duration, err error) {
					d := time.Since(begin)
					return time.Minute + c.idle(d), time.Hour + 2*d, nil
				})
				if got := together(t, queue, 100, each); got != c.want {
					t.Errorf("%d calls before the first came back, want %d", got, c.want)
				}
			})
		})
	}
}

// TestIdleProbeEnds: CPU idle time is read for a short time only, and once per process.
func TestIdleProbeEnds(t *testing.T) {
	for name, c := range map[string]struct {
		each   time.Duration
		failed error
		reads  int
	}{
		// the last reading finds that calls have completed
		"calls come back": {each: 3*idleProbePeriod - 10*time.Millisecond, reads: 4},
		"calls hang":      {each: 4 * time.Second, reads: int(idleProbeLength/idleProbePeriod) + 2},
		"unreadable":      {each: 4 * time.Second, failed: errors.New("no such file"), reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				queue := newCallQueue(func() (idle, all time.Duration, err error) {
					reads++
					return 0, time.Duration(reads) * time.Second, c.failed
				})
				for range 2 {
					together(t, queue, 2*initialLimit, c.each)
					time.Sleep(time.Minute)
				}
				if reads != c.reads {
					t.Errorf("the processors were read %d times, want %d", reads, c.reads)
				}
			})
		})
	}
}
