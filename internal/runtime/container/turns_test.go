package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
)

func busy() bool { return false }

// calls starts one call for each rank at the same moment, each taking d, and
// returns their indexes in the order in which they were let go.
func calls(t *testing.T, turns *turns, d time.Duration, ranks ...rank) []int {
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			done, err := turns.take(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(d)
		})
		synctest.Wait()
	}
	all.Wait()
	return order
}

func TestTurnsGoByRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		turns := &turns{slots: 1, idle: busy}
		order := calls(t, turns, time.Second,
			rank{created: now}, // is under way when the others come
			rank{created: now.Add(time.Second)},
			rank{created: now},
			rank{created: now},
			rank{continuing: true, created: now.Add(time.Minute)},
			rank{critical: true, created: now.Add(time.Minute)},
			rank{critical: true, continuing: true, created: now.Add(time.Minute)},
		)
		if want := []int{0, 6, 5, 4, 2, 3, 1}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

func TestTurnsAreAFewAtATimeOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		calls(t, &turns{slots: 4, idle: busy}, time.Second, make([]rank, 20)...)
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("20 calls of 1 s, 4 at a time, took %v", took)
		}
	})
}

func TestIdleCPUsLetMoreCallsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		calls(t, &turns{slots: 4, extra: 2, idle: func() bool { return true }}, time.Second, make([]rank, 100)...)
		if took := time.Since(begin); took > time.Second+100*time.Millisecond {
			t.Errorf("100 calls that only wait took %v, want little more than one", took)
		}
	})
}

func TestACallThatHangsGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{slots: 1, idle: busy}
		hung, err := turns.take(t.Context(), rank{})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		done, err := turns.take(t.Context(), rank{})
		if err != nil || time.Since(begin) != turnPatience {
			t.Errorf("let go after %v, %v; want %v", time.Since(begin), err, turnPatience)
		}
		hung() // late, and not to be counted twice
		done()
		done()
		if turns.taken != 0 {
			t.Errorf("%d turns taken in the end", turns.taken)
		}
	})
}

func TestWhoGivesUpWaitingLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{slots: 1, idle: busy}
		first, err := turns.take(t.Context(), rank{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.take(ctx, rank{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that time is over", err)
		}
		first()
		time.Sleep(time.Second)
		synctest.Wait()
		if turns.taken != 0 || len(turns.waiting) != 0 || turns.looking {
			t.Errorf("left behind: %+v", turns)
		}
	})
}

func TestRankOf(t *testing.T) {
	api, static := &v1.Pod{}, &v1.Pod{}
	static.Annotations = map[string]string{pod.AnnotationConfigSource: "file"}
	system := &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To[int32](2_000_001_000)}}
	high := &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To[int32](1_000_000_000)}}
	for i, c := range []struct {
		pod  *v1.Pod
		want bool
	}{{api, false}, {static, true}, {system, true}, {high, false}} {
		if got := rankOf(c.pod, false).critical; got != c.want {
			t.Errorf("pod %d: critical %v, want %v", i, got, c.want)
		}
	}
}

func TestIdleCPUIsReadFromTheMachine(t *testing.T) {
	if idleCPU(0)() {
		t.Error("a CPU is idle where there is none")
	}
	if !idleCPU(1 << 20)() {
		t.Error("no CPU is idle among a million")
	}
}

func TestRunnable(t *testing.T) {
	for text, want := range map[string]int{"0.20 0.18 0.12 3/80 11206\n": 3, "": -1, "0.20 0.18 0.12": -1, "a b c d e": -1, "1 2 3 x/2 5": -1} {
		n, ok := runnable([]byte(text))
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d", text, n, want)
		}
	}
	if _, ok := runnable(fmt.Appendf(nil, "0 0 0 1/1 1")); !ok {
		t.Error("the shortest line is not read")
	}
}
