package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/clock"
)

const (
	// maxMemoryRate is the assumed maximum rate, in bytes per second, at which memory is used up: twice that of a
	// single program on a fast machine.
	maxMemoryRate = 8 << 30
	// minInterval is the minimum interval between two checks.
	minInterval = 10 * time.Millisecond
	// retryPeriod is the interval between checks while a threshold is met and no pod can be evicted.
	retryPeriod = time.Second
	// rateWindow is the time over which the rate is measured at which memory is used up.
	rateWindow = time.Second
	// immediateBelow is the time to exhaustion below which a pod is killed immediately. The runtime is slow when
	// memory is low, and a graceful termination takes at least two seconds.
	immediateBelow = 5 * time.Second
)

// monitorMemory monitors memory, more often the less is available.
func (e *Manager) monitorMemory(ctx context.Context) {
	ts := slices.DeleteFunc(slices.Clone(e.cfg.Thresholds), func(t Threshold) bool { return !t.Signal.memory() })
	if len(ts) == 0 {
		e.publish(memoryLoop, nil)
		return
	}
	w := memoryMonitor{e: e, thresholds: ts, signals: signalsOf(ts)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(w.check(ctx))
	}
}

// memoryMonitor is the state of the memory loop.
type memoryMonitor struct {
	e          *Manager
	thresholds []Threshold
	signals    []Signal
	state      State
	before     []Observations // oldest first; those older than rateWindow are dropped, except the last one
	announced  time.Time      // of the last event
}

// check makes one check, and evicts a pod if necessary. It returns the time until the next check.
func (w *memoryMonitor) check(ctx context.Context) time.Duration {
	e := w.e
	seen := e.cfg.Source.Observe(ctx, w.signals)
	if ctx.Err() != nil {
		return monitoringInterval
	}
	now := e.cfg.Now()
	var f Finding
	w.state, f = w.state.Evaluate(w.thresholds, seen, e.cfg.PressureTransition, now)
	left := timeToExhaustion(f.Act, w.remember(now, seen), seen)
	m, short := mostUrgent(f.Act)
	e.mu.Lock()
	e.short = short
	e.mu.Unlock()
	e.publish(memoryLoop, f.Pressures)
	e.forgetReleased()
	act := short && e.canEvict()
	if act {
		w.announce(m, now)
	}
	switch {
	case act && e.evictForThreshold(ctx, m, f.Act, Disks{}, m.Hard() && left > 0 && left < immediateBelow):
		return 0
	case short:
		return retryPeriod
	}
	wait := nextCheck(w.thresholds, seen)
	if !f.Next.IsZero() {
		wait = min(wait, max(f.Next.Sub(now), minInterval))
	}
	return wait
}

// announce records the event at most once per monitoringInterval, as upstream: checks can be much more frequent.
func (w *memoryMonitor) announce(m Met, now time.Time) {
	if !w.announced.IsZero() && now.Sub(w.announced) < monitoringInterval {
		return
	}
	w.announced = now
	w.e.cfg.Events.Node(v1.EventTypeWarning, EventThresholdMet,
		fmt.Sprintf(messageReclaim, signalInfo[m.Signal].resource))
}

// remember stores the observations, and returns those from which the rate is measured.
func (w *memoryMonitor) remember(now time.Time, seen Observations) (before Observations) {
	at := func(o Observations) (at time.Time) {
		for _, one := range o {
			at = clock.Earlier(at, one.At)
		}
		return at
	}
	for len(w.before) > 1 && now.Sub(at(w.before[0])) > rateWindow {
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

// timeToExhaustion estimates when memory is exhausted at its current rate. Zero: it is not being used up.
func timeToExhaustion(act []Met, before, now Observations) (left time.Duration) {
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

// nextCheck returns the time within which memory cannot fall below another threshold at the maximum rate.
func nextCheck(ts []Threshold, seen Observations) time.Duration {
	wait := monitoringInterval
	for _, t := range ts {
		o, known := seen[t.Signal]
		if !known {
			continue
		}
		if above := o.Available - t.Least.Of(o.Capacity); above >= 0 {
			wait = min(wait, time.Duration(float64(above)/maxMemoryRate*float64(time.Second)))
		}
	}
	return max(wait, minInterval)
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
