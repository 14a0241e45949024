package faults

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type named struct {
	name        string
	skip, times int
}

func (n named) Matches(call string) bool { return n.name == "" || n.name == call }

func (n named) Window() (skip, times int) { return n.skip, n.times }

func TestWindow(t *testing.T) {
	var s Set[string, named]
	two := s.Inject(named{name: "a", skip: 1, times: 2})
	all := s.Inject(named{})
	for i, want := range []int{1, 2, 2, 1} {
		if met := s.Meet("a"); len(met) != want || len(s.Met("a")) != want {
			t.Errorf("call %d meets %d faults, and met %d, want %d", i, len(met), len(s.Met("a")), want)
		}
	}
	if met := s.Meet("b"); len(met) != 1 || met[0] != all {
		t.Errorf("another call meets %v", met)
	}
	if two.Hits() != 2 || two.Last() != "a" || all.Hits() != 5 || all.Last() != "b" {
		t.Errorf("%d and %d hits", two.Hits(), all.Hits())
	}
	select {
	case <-two.Hit():
	default:
		t.Error("the first hit is not reported")
	}
	s.ReleaseAll()
	two.Release() // idempotent
	if met := s.Meet("a"); len(met) != 0 {
		t.Errorf("a call meets %d released faults", len(met))
	}
}

func TestHeldCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set[string, named]
		in := s.Inject(named{})
		began := time.Now()
		if err := in.Delay(t.Context(), time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("delayed by %v, %v", time.Since(began), err)
		}
		ctx, stop := context.WithCancel(t.Context())
		results := make(chan error, 3)
		go func() { results <- in.Hang(ctx) }()
		go func() { results <- in.Delay(ctx, time.Hour) }()
		synctest.Wait()
		if n := in.Waiting(); n != 2 {
			t.Errorf("%d calls wait", n)
		}
		stop()
		for range 2 {
			if err := <-results; !errors.Is(err, context.Canceled) {
				t.Errorf("a call whose context ended: %v", err)
			}
		}
		go func() { results <- in.Hang(t.Context()) }()
		synctest.Wait()
		in.Release()
		if err := <-results; err != nil || in.Waiting() != 0 {
			t.Errorf("a released call: %v, %d wait", err, in.Waiting())
		}
	})
}
