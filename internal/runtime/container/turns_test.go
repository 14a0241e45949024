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

// crowded is a runtime that gives its processors to all calls alike. Between
// many calls some of its time is lost.
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

// call is a call with so much work to do.
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

// burst starts n pods at once, each by three calls, and returns when each was
// started, the first one first.
func burst(t *testing.T, turns *turns, c *crowded, n int) []time.Duration {
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
			}{{runSandbox, 100 * time.Millisecond}, {createContainer, 25 * time.Millisecond}, {startContainer, 40 * time.Millisecond}} {
				if _, err := inTurn(ctx, turns, step.verb, rank{continuing: step.verb != runSandbox}, c.call(step.work)); err != nil {
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

// unbounded lets everything go at once.
func unbounded() *turns {
	t := newTurns(nil)
	t.pace.limit = 1 << 20
	return t
}

func TestInTurnPodsAreReadyOneAfterAnother(t *testing.T) {
	runtime := func() *crowded { return &crowded{processors: 2, waste: 0.002, jobs: map[*float64]bool{}} }
	for name, c := range map[string]struct {
		before int // pods started one at a time before
		share  time.Duration
	}{"first burst": {0, 75}, "with pods before it": {3, 65}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 60
				once := burst(t, unbounded(), runtime(), n)
				turns := newTurns(nil)
				for range c.before {
					burst(t, turns, runtime(), 1)
				}
				turned := burst(t, turns, runtime(), n)
				t.Logf("at once: median %v, last %v; in turn: first %v, median %v, last %v; limit %.1f", once[n/2], once[n-1], turned[0], turned[n/2], turned[n-1], turns.pace.limit)
				if turned[n/2] > once[n/2]*c.share/100 {
					t.Errorf("in turn the median is %v, at once %v", turned[n/2], once[n/2])
				}
				if turned[n-1] > once[n-1] {
					t.Errorf("in turn the last is %v, at once %v", turned[n-1], once[n-1])
				}
			})
		})
	}
}

// A runtime that serves any number alike is not held back.
func TestTurnsOpenToARuntimeWithoutLimit(t *testing.T) {
	for name, c := range map[string]struct{ each, last time.Duration }{
		"quick": {130 * time.Millisecond, 270 * time.Millisecond},
		"slow":  {2 * time.Second, 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := newTurns(nil)
				begin := time.Now()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						if _, err := inTurn(t.Context(), turns, runSandbox, rank{}, func() (struct{}, error) { time.Sleep(c.each); return struct{}{}, nil }); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				took := time.Since(begin)
				t.Logf("took %v; limit %.1f", took, turns.pace.limit)
				if took > c.last {
					t.Errorf("100 calls of %v took %v", c.each, took)
				}
			})
		})
	}
}

// only returns turns with a fixed number of places.
func only(n float64) *turns {
	t := newTurns(nil)
	t.pace.limit = n
	return t
}

func TestTurnsGoByRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		turns := only(1)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i, r := range []rank{
			{created: now}, // is under way when the others come
			{created: now.Add(time.Second)},
			{created: now},
			{created: now},
			{continuing: true, created: now.Add(time.Minute)},
			{critical: true, created: now.Add(time.Minute)},
			{critical: true, continuing: true, created: now.Add(time.Minute)},
			ending,
		} {
			all.Go(func() {
				mine, err := turns.take(t.Context(), runSandbox, r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				turns.give(mine, false) // teaches nothing
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []int{0, 6, 5, 7, 4, 2, 3, 1}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

func TestThePlaceOfACallThatHangsIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := only(1)
		hung, err := turns.take(t.Context(), runSandbox, rank{})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		next, err := turns.take(t.Context(), runSandbox, rank{})
		if err != nil || time.Since(begin) != turnPatience {
			t.Errorf("let go after %v, %v; want %v", time.Since(begin), err, turnPatience)
		}
		turns.give(hung, true) // late, and not to be counted twice
		turns.give(next, true)
		if turns.here != 0 {
			t.Errorf("%d places taken in the end", turns.here)
		}
	})
}

func TestWhoGivesUpWaitingLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := only(1)
		first, err := turns.take(t.Context(), runSandbox, rank{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.take(ctx, runSandbox, rank{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that time is over", err)
		}
		turns.give(first, true)
		if turns.here != 0 || len(turns.waiting) != 0 {
			t.Errorf("left behind: %+v", turns)
		}
	})
}

// A runtime that refuses calls at once is not taken for a quick one.
func TestFailedCallsTeachNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(nil)
		before := turns.pace
		for range 50 {
			_, err := inTurn(t.Context(), turns, runSandbox, rank{}, func() (struct{}, error) {
				time.Sleep(time.Millisecond)
				return struct{}{}, errors.New("no")
			})
			if err == nil {
				t.Fatal("no error")
			}
		}
		if turns.pace != before {
			t.Errorf("learned %+v from %+v", turns.pace, before)
		}
	})
}

func TestPaceStaysWithinItsBounds(t *testing.T) {
	p := newPace()
	for range 100 {
		p.learn(runSandbox, time.Hour, 100, true)
	}
	if p.limit != fewest {
		t.Errorf("limit %v among calls that take for ever", p.limit)
	}
	for range 10000 {
		p.learn(runSandbox, time.Hour, 2, true)
		p.learn(runSandbox, time.Hour, p.limit, true)
	}
	if p.limit != most {
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
