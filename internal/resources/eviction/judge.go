package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// stale is the age at which a measurement says nothing of now any more.
const stale = 30 * time.Second

// Observation is how much is left of something.
type Observation struct {
	Capacity  uint64
	Available int64
	At        time.Time // when it was measured
}

// Observations are what was measured, by signal. What could not be measured is not
// there.
type Observations map[Signal]Observation

// key tells the thresholds of one signal apart.
type key struct {
	signal Signal
	grace  time.Duration
}

func (t Threshold) key() key { return key{t.Signal, t.Grace} }

// State is what is known from earlier looks. It is a value: Judge makes another one.
// The zero value knows nothing.
type State struct {
	since   map[key]time.Time                  // when a threshold that is met was first seen so
	open    map[key]bool                       // was to be acted on: more than the least is wanted now
	seen    map[Signal]time.Time               // when what was seen last was measured
	pressed map[v1.NodeConditionType]time.Time // when each pressure was last there
}

// Met is a threshold below which too little is left, for longer than it may be.
type Met struct {
	Threshold
	Observation
}

// Finding is what a look shows.
type Finding struct {
	// Pressures are those that the node is under, or was a short while ago.
	Pressures []v1.NodeConditionType
	// Act are the thresholds that something has to be done about, the most urgent
	// first.
	Act []Met
	// Next is when to look again if nothing happens first: a threshold's grace is
	// over then. Zero: there is none.
	Next time.Time
}

// Judge compares what is left with what must be. A pressure is shown for hold after
// it was last there. What could not be measured, or was so too long ago, counts as if
// there were enough of it; and what was measured before the last look began is not
// acted on again.
func (s State) Judge(ts []Threshold, seen Observations, hold time.Duration, now time.Time) (State, Finding) {
	next := State{since: map[key]time.Time{}, open: map[key]bool{}, seen: map[Signal]time.Time{}, pressed: map[v1.NodeConditionType]time.Time{}}
	var f Finding
	for _, t := range ts {
		o, known := seen[t.Signal]
		if !known || now.Sub(o.At) > stale {
			continue
		}
		next.seen[t.Signal] = o.At
		least := t.Least.Of(o.Capacity)
		if s.open[t.key()] {
			least += t.Reclaim.Of(o.Capacity)
		}
		if o.Available >= least {
			continue
		}
		since, before := s.since[t.key()]
		if !before {
			since = now
		}
		next.since[t.key()] = since
		if p := about[t.Signal].pressure; p != "" {
			next.pressed[p] = now
		}
		over := since.Add(t.Grace)
		if now.Before(over) {
			f.Next = earlier(f.Next, over)
			continue
		}
		next.open[t.key()] = true
		if last, acted := s.seen[t.Signal]; !acted || o.At.After(last) {
			f.Act = append(f.Act, Met{t, o})
		}
	}
	slices.SortStableFunc(f.Act, func(a, b Met) int { return byUrgency(a.Threshold, b.Threshold) })
	for p, at := range s.pressed {
		if _, now := next.pressed[p]; !now {
			next.pressed[p] = at
		}
	}
	for _, p := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		if at, ok := next.pressed[p]; ok && (at.Equal(now) || now.Sub(at) < hold) {
			f.Pressures = append(f.Pressures, p)
		}
	}
	return next, f
}

// worst is the threshold to act on: the first of those that something is scarce of.
func worst(act []Met) (Met, bool) {
	for _, m := range act {
		if about[m.Signal].resource != "" {
			return m, true
		}
	}
	return Met{}, false
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
