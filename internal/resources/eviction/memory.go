package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// fastest is the speed, in bytes a second, at which memory is taken for able to go:
	// twice what a single program manages on a fast machine.
	fastest = 8 << 30
	// closest is the shortest time between two looks.
	closest = 10 * time.Millisecond
	// fruitless is the time between looks while too little is left and nobody can be
	// ended for it.
	fruitless = time.Second
	// memory of looks, over which the speed is measured at which memory goes.
	backlog = time.Second
	// hurry is the time in which nothing may be left without a pod being killed at
	// once: one that is asked to stop has two seconds at least, and where memory is
	// short a runtime takes its time, too.
	hurry = 5 * time.Second
)

// watchMemory looks at memory, the more often the less is left.
func (e *Evictor) watchMemory(ctx context.Context) {
	ts := slices.DeleteFunc(slices.Clone(e.cfg.Thresholds), func(t Threshold) bool { return !t.Signal.memory() })
	if len(ts) == 0 {
		e.show(memoryLane, nil)
		return
	}
	w := memoryWatch{e: e, thresholds: ts, signals: signalsOf(ts)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(w.look(ctx))
	}
}

// memoryWatch is what the memory loop knows.
type memoryWatch struct {
	e          *Evictor
	thresholds []Threshold
	signals    []Signal
	state      State
	before     []Observations // the oldest first, at most backlog old but for the last
	announced  time.Time      // when the node was last told to be short
}

// look looks once, and ends a pod if it has to. It tells when to look again.
func (w *memoryWatch) look(ctx context.Context) time.Duration {
	e := w.e
	seen := e.cfg.Source.Observe(ctx, w.signals)
	if ctx.Err() != nil {
		return period
	}
	now := e.cfg.Now()
	var f Finding
	w.state, f = w.state.Judge(w.thresholds, seen, e.cfg.Hold, now)
	left := remaining(f.Act, w.recall(now, seen), seen)
	m, short := worst(f.Act)
	e.mu.Lock()
	e.short = short
	e.mu.Unlock()
	e.show(memoryLane, f.Pressures)
	e.sweep()
	act := short && e.mayAct()
	if act {
		w.announce(m, now)
	}
	switch {
	case act && e.relieve(ctx, m, f.Act, Disks{}, m.Hard() && left > 0 && left < hurry):
		return 0
	case short:
		return fruitless
	}
	wait := pace(w.thresholds, seen)
	if !f.Next.IsZero() {
		wait = min(wait, max(f.Next.Sub(now), closest))
	}
	return wait
}

// announce says that memory is to be had back, as often as upstream's agent looks:
// this one may look a hundred times a second.
func (w *memoryWatch) announce(m Met, now time.Time) {
	if !w.announced.IsZero() && now.Sub(w.announced) < period {
		return
	}
	w.announced = now
	w.e.cfg.Events.Node(v1.EventTypeWarning, EventThresholdMet, fmt.Sprintf(saysReclaim, about[m.Signal].resource))
}

// recall notes what was seen, and returns what the speed is measured from.
func (w *memoryWatch) recall(now time.Time, seen Observations) (before Observations) {
	at := func(o Observations) (at time.Time) {
		for _, one := range o {
			at = earlier(at, one.At)
		}
		return at
	}
	for len(w.before) > 1 && now.Sub(at(w.before[0])) > backlog {
		w.before = w.before[1:]
	}
	if len(w.before) > 0 {
		before = w.before[0]
	}
	if len(seen) > 0 {
		w.before = append(w.before, seen)
	}
	return before
}

// remaining is the time until nothing is left if memory goes on to go as it did
// between two looks; zero: it does not go.
func remaining(act []Met, before, now Observations) (left time.Duration) {
	for _, m := range act {
		b, known := before[m.Signal]
		n := now[m.Signal]
		took, gone := n.At.Sub(b.At), b.Available-n.Available
		if !known || took <= 0 || gone <= 0 {
			continue
		}
		t := max(time.Duration(float64(n.Available)/float64(gone)*float64(took)), 1)
		if left == 0 || t < left {
			left = t
		}
	}
	return left
}

// pace is the time after which memory cannot have come below another threshold yet,
// however fast it goes.
func pace(ts []Threshold, seen Observations) time.Duration {
	wait := period
	for _, t := range ts {
		o, known := seen[t.Signal]
		if !known {
			continue
		}
		if above := o.Available - t.Least.Of(o.Capacity); above >= 0 {
			wait = min(wait, time.Duration(float64(above)/fastest*float64(time.Second)))
		}
	}
	return max(wait, closest)
}

func signalsOf(ts []Threshold) []Signal {
	var out []Signal
	for _, t := range ts {
		if !slices.Contains(out, t.Signal) {
			out = append(out, t.Signal)
		}
	}
	return out
}
