package container

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
)

// crowded is a runtime whose CPUs are shared equally by all calls. With many calls some time is
// lost.
type crowded struct {
	processors float64
	waste      float64 // share of the time that each call more than processors loses
	mu         sync.Mutex
	jobs       map[*float64]bool // seconds of work left
}

// serve runs until the context ends, in steps of virtual time.
func (c *crowded) serve(ctx context.Context) {
	const step = 5 * time.Millisecond
	for ctx.Err() == nil {
		time.Sleep(step)
		c.mu.Lock()
		if n := float64(len(c.jobs)); n > 0 {
			share := min(1, c.processors/n) / (1 + c.waste*max(0, n-c.processors))
			for j := range c.jobs {
				*j -= step.Seconds() * share
			}
		}
		c.mu.Unlock()
	}
}

// call returns a call with that much work.
func (c *crowded) call(work time.Duration) func() (struct{}, error) {
	return func() (struct{}, error) {
		left := work.Seconds()
		c.mu.Lock()
		c.jobs[&left] = true
		c.mu.Unlock()
		for {
			time.Sleep(5 * time.Millisecond)
			c.mu.Lock()
			done := left <= 1e-9
			if done {
				delete(c.jobs, &left)
			}
			c.mu.Unlock()
			if done {
				return struct{}{}, nil
			}
		}
	}
}

// burst starts n pods at once, each with three calls, and returns when each was started, sorted.
func burst(t *testing.T, queue *callQueue, c *crowded, n int) []time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	var all, server sync.WaitGroup
	server.Go(func() { c.serve(ctx) })
	begin := time.Now()
	var mu sync.Mutex
	var took []time.Duration
	for range n {
		all.Go(func() {
			for _, step := range []struct {
				verb verb
				work time.Duration
			}{
				{runSandbox, 100 * time.Millisecond},
				{createContainer, 25 * time.Millisecond},
				{startContainer, 40 * time.Millisecond},
			} {
				if _, err := inQueue(ctx, queue, step.verb, rank{continuing: step.verb != runSandbox},
					c.call(step.work)); err != nil {
					t.Error(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begin))
		})
	}
	all.Wait()
	cancel()
	server.Wait()
	return took
}

// unbounded has no limit.
func unbounded() *callQueue {
	t := newCallQueue(nil)
	t.pace.limit = 1 << 20
	return t
}

func TestCallQueueReducesStartLatency(t *testing.T) {
	runtime := func() *crowded { return &crowded{processors: 2, waste: 0.002, jobs: map[*float64]bool{}} }
	for name, c := range map[string]struct {
		before int // pods started one at a time before
		share  time.Duration
	}{"first burst": {0, 75}, "with pods before it": {3, 65}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 60
				once := burst(t, unbounded(), runtime(), n)
				queue := newCallQueue(nil)
				for range c.before {
					burst(t, queue, runtime(), 1)
				}
				queued := burst(t, queue, runtime(), n)
				t.Logf("at once: median %v, last %v; queued: first %v, median %v, last %v; limit %.1f", once[n/2],
					once[n-1],
					queued[0], queued[n/2], queued[n-1], queue.pace.limit)
				if queued[n/2] > once[n/2]*c.share/100 {
					t.Errorf("queued the median is %v, at once %v", queued[n/2], once[n/2])
				}
				if queued[n-1] > once[n-1] {
					t.Errorf("queued the last is %v, at once %v", queued[n-1], once[n-1])
				}
			})
		})
	}
}

// A runtime without contention is not limited.
func TestCallQueueWithoutContention(t *testing.T) {
	for name, c := range map[string]struct{ each, last time.Duration }{
		"quick": {130 * time.Millisecond, 270 * time.Millisecond},
		"slow":  {2 * time.Second, 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := newCallQueue(nil)
				begin := time.Now()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						if _, err := inQueue(t.Context(), queue, runSandbox, rank{},
							func() (struct{}, error) { time.Sleep(c.each); return struct{}{}, nil }); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				took := time.Since(begin)
				t.Logf("took %v; limit %.1f", took, queue.pace.limit)
				if took > c.last {
					t.Errorf("100 calls of %v took %v", c.each, took)
				}
			})
		})
	}
}

// only returns queue with a fixed number of slots.
func only(n float64) *callQueue {
	t := newCallQueue(nil)
	t.pace.limit = n
	return t
}

func TestCallQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		queue := only(1)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i, r := range []rank{
			{created: now}, // active when the others arrive
			{created: now.Add(time.Second)},
			{created: now},
			{created: now},
			{continuing: true, created: now.Add(time.Minute)},
			{critical: true, created: now.Add(time.Minute)},
			{critical: true, continuing: true, created: now.Add(time.Minute)},
			stopRank,
		} {
			all.Go(func() {
				mine, err := queue.acquire(t.Context(), runSandbox, r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				queue.release(mine, false) // not measured
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []int{0, 6, 5, 7, 4, 2, 3, 1}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

func TestHangingCallReleasesSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := only(1)
		hung, err := queue.acquire(t.Context(), runSandbox, rank{})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		next, err := queue.acquire(t.Context(), runSandbox, rank{})
		if err != nil || time.Since(begin) != slotTimeout {
			t.Errorf("started after %v, %v; want %v", time.Since(begin), err, slotTimeout)
		}
		queue.release(hung, true) // late, and not to be released twice
		queue.release(next, true)
		if queue.active != 0 {
			t.Errorf("%d slots taken in the end", queue.active)
		}
	})
}

func TestCancelledWaitForSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := only(1)
		first, err := queue.acquire(t.Context(), runSandbox, rank{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := queue.acquire(ctx, runSandbox, rank{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that time is over", err)
		}
		queue.release(first, true)
		if queue.active != 0 || len(queue.waiting) != 0 {
			t.Errorf("left behind: %+v", queue)
		}
	})
}

// A runtime that rejects calls at once is not considered fast.
func TestFailedCallsAreNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newCallQueue(nil)
		before := queue.pace
		for range 50 {
			_, err := inQueue(t.Context(), queue, runSandbox, rank{}, func() (struct{}, error) {
				time.Sleep(time.Millisecond)
				return struct{}{}, errors.New("no")
			})
			if err == nil {
				t.Fatal("no error")
			}
		}
		if queue.pace != before {
			t.Errorf("learned %+v from %+v", queue.pace, before)
		}
	})
}

func TestPaceBounds(t *testing.T) {
	p := newPace()
	for range 100 {
		p.learn(runSandbox, time.Hour, 100, true)
	}
	if p.limit != minLimit {
		t.Errorf("limit %v among calls that take for ever", p.limit)
	}
	for range 10000 {
		p.learn(runSandbox, time.Hour, 2, true)
		p.learn(runSandbox, time.Hour, p.limit, true)
	}
	if p.limit != maxLimit {
		t.Errorf("limit %v where calls take as long as alone", p.limit)
	}
}

func TestRankOf(t *testing.T) {
	at := metav1.Now()
	system := &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To[int32](2_000_001_000)}}
	system.CreationTimestamp = at
	static := &v1.Pod{}
	static.Annotations = map[string]string{pod.AnnotationConfigSource: "file"}
	if r := rankOf(system, true); r != (rank{true, true, at.Time}) {
		t.Errorf("a critical pod: %+v", r)
	}
	if r := rankOf(static, false); !r.critical || r.continuing {
		t.Errorf("a static pod: %+v", r)
	}
	if r := rankOf(&v1.Pod{}, false); r.critical {
		t.Errorf("an ordinary pod: %+v", r)
	}
}
