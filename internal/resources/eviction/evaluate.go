package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/clock"
)

// stale is the age from which a measurement is ignored.
const stale = 30 * time.Second

// Observation is the measurement of a signal.
type Observation struct {
	Capacity  uint64
	Available int64
	At        time.Time // of the measurement
}

// Observations are the measurements by signal. Signals that could not be measured are missing.
type Observations map[Signal]Observation

// key identifies a threshold.
type key struct {
	signal Signal
	grace  time.Duration
}

func (t Threshold) key() key { return key{t.Signal, t.Grace} }

// State is the result of earlier checks. It is a value: Evaluate returns a new one. The zero value is valid.
type State struct {
	since   map[key]time.Time                  // when a threshold that is met was first met
	open    map[key]bool                       // thresholds acted on, for which minimum reclaim applies
	seen    map[Signal]time.Time               // time of the last measurement
	pressed map[v1.NodeConditionType]time.Time // when each pressure was last observed
}

// Met is a threshold that is met, for longer than its grace period.
type Met struct {
	Threshold
	Observation
}

// Finding is the result of a check.
type Finding struct {
	// Pressures are the pressure conditions, including those within the transition period.
	Pressures []v1.NodeConditionType
	// Act are the thresholds to act on, most urgent first.
	Act []Met
	// Next is the end of the next grace period of a threshold. Zero: there is none.
	Next time.Time
}

// Evaluate compares the measurements with the thresholds. A pressure condition remains for hold after it was last
// observed. A signal that is missing or stale does not meet its threshold. A measurement that was acted on before is
// not acted on again.
func (s State) Evaluate(ts []Threshold, seen Observations, hold time.Duration, now time.Time) (State, Finding) {
	next := State{
		since:   map[key]time.Time{},
		open:    map[key]bool{},
		seen:    map[Signal]time.Time{},
		pressed: map[v1.NodeConditionType]time.Time{},
	}
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
		if p := signalInfo[t.Signal].pressure; p != "" {
			next.pressed[p] = now
		}
		over := since.Add(t.Grace)
		if now.Before(over) {
			f.Next = clock.Earlier(f.Next, over)
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

// mostUrgent returns the most urgent threshold that can be acted on.
func mostUrgent(act []Met) (Met, bool) {
	for _, m := range act {
		if signalInfo[m.Signal].resource != "" {
			return m, true
		}
	}
	return Met{}, false
}
