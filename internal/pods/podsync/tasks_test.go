package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

func TestFailedRemovalIsNodeEvent(t *testing.T) {
	parity.Proves(t, "RT-33")
	m, n := newMeasured(t), &noted{}
	m.cfg.Events = n
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	end := func(verb podplan.Verb, err error) {
		step, key := &task{verb: verb}, podplan.KeyOf(verb, podplan.Instance("x"))
		w.tasks.running[key] = step
		w.settle(finished{
			key:  key,
			task: step,
			err:  err,
			at:   m.now,
		})
	}
	stuck := errors.New("remove container x: device or resource busy")
	end(podplan.Remove, stuck)
	end(podplan.Remove, stuck) // once in a row
	end(podplan.Remove, nil)
	end(podplan.RemoveSandbox, fmt.Errorf("remove sandbox x: %w", status.Error(codes.Unknown, "no")))
	end(podplan.Remove, nil)
	end(podplan.Stop, stuck)
	end(podplan.Stop, nil)
	end(podplan.Remove, status.Error(codes.Unavailable, "no runtime there"))
	end(podplan.Remove, nil)
	end(podplan.Remove, context.Canceled)
	want := []string{"node Warning ContainerGCFailed remove container x: device or resource busy",
		"node Warning ContainerGCFailed remove sandbox x: rpc error: code = Unknown desc = no"}
	if !slices.Equal(n.logged, want) {
		t.Errorf("logged %q, want %q", n.logged, want)
	}
}

// TestFailedStartsAreRetriedTogether has two containers fail to start. A third one fails for the first time later.
func TestFailedStartsAreRetriedTogether(t *testing.T) {
	m := newMeasured(t)
	m.cfg.Events = &noted{}
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	key := func(name string) podplan.Key { return podplan.KeyOf(podplan.Start, podplan.Container(name)) }
	missing := errors.New("secret not found")
	fail := func(name string, err error) {
		m.now = m.now.Add(time.Millisecond)
		step := &task{verb: podplan.Start}
		w.tasks.running[key(name)] = step
		w.settle(finished{key: key(name), task: step, err: err, at: m.now})
	}
	pauses := func(names ...string) (list []time.Duration) {
		for _, name := range names {
			list = append(list, w.tasks.retries[key(name)].at.Sub(m.now).Round(time.Second))
		}
		return list
	}
	// due sets the clock to the end of the pauses: the first container starts, the second waits for it.
	due := func() {
		m.now = w.tasks.retries[key("a")].at
		w.tasks.dropRetries(m.now, podplan.Plan{
			Steps:   []podplan.Step{{Verb: podplan.Start, Target: podplan.Container("a")}},
			ToStart: []string{"a", "b"},
		})
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
		fail("a", missing)
		fail("b", missing)
		if got := pauses("a", "b"); got[0] != pause*time.Second || got[1] != got[0] {
			t.Fatalf("pauses %v, want %v s for both", got, int(pause))
		}
		if a, b := w.tasks.retries[key("a")].at, w.tasks.retries[key("b")].at; !a.Equal(b) {
			t.Errorf("one is due at %v, the other at %v", a, b)
		}
		due()
	}
	fail("a", missing)
	fail("b", missing)
	fail("c", missing)
	if got := pauses("a", "b", "c"); !slices.Equal(got, []time.Duration{time.Second, time.Second, time.Second}) {
		t.Errorf("pauses %v after another one has failed for the first time, want a second", got)
	}
	due()
	fail("a", nil)
	w.tasks.dropRetries(m.now, podplan.Plan{})
	if len(w.tasks.retries) != 0 {
		t.Errorf("%d failures are kept of what need not be tried again", len(w.tasks.retries))
	}
}
