package timeline

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	firstKept = 24 // the start of a pod with a dozen containers
	lastKept  = 16
	callsKept = 12 // of one step
)

// Line is the history of one pod. Its zero value is ready for use.
type Line struct {
	mu    sync.Mutex
	steps []*Step
	// lost counts steps between the first and the newest that are not kept.
	lost int
}

// Step is one step, finished or in progress.
type Step struct {
	line *Line
	View
}

// View is a copy of a step for display.
type View struct {
	Verb    string    `json:"verb"`
	Target  string    `json:"target,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Why     string    `json:"why,omitempty"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended,omitzero"` // zero: in progress
	Error   string    `json:"error,omitempty"`
	Calls   []Call    `json:"calls,omitempty"`
}

// Call is one call to the runtime.
type Call struct {
	Method string        `json:"method"`
	Began  time.Time     `json:"began"`
	Took   time.Duration `json:"took"`
	Error  string        `json:"error,omitempty"`
}

// Begin records the beginning of a step.
func (l *Line) Begin(now time.Time, v View) *Step {
	v.Began = now
	s := &Step{line: l, View: v}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.steps) == firstKept+lastKept {
		l.steps = slices.Delete(l.steps, firstKept, firstKept+1)
		l.lost++
	}
	l.steps = append(l.steps, s)
	return s
}

// End records the end of a step; only the first call has an effect. A nil step is ignored.
func (s *Step) End(now time.Time, err error) {
	if s == nil {
		return
	}
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	if !s.Ended.IsZero() {
		return
	}
	s.Ended = now
	if err != nil {
		s.Error = err.Error()
	}
}

// Call records a call that was made for the step. A nil step is ignored.
func (s *Step) Call(method string, began time.Time, took time.Duration, err error) {
	if s == nil {
		return
	}
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	if len(s.Calls) == callsKept {
		return
	}
	c := Call{Method: method, Began: began, Took: took}
	if err != nil {
		c.Error = err.Error()
	}
	s.Calls = append(s.Calls, c)
}

// Steps returns copies of the steps that are kept, in the order in which they began, and how many are missing after the
// first [firstKept].
func (l *Line) Steps() (steps []View, lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.steps {
		v := s.View
		v.Calls = slices.Clone(v.Calls)
		steps = append(steps, v)
	}
	return steps, l.lost
}

type key struct{}

// With returns a context for the work of a step.
func With(ctx context.Context, s *Step) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the step of the context; nil if it has none.
func From(ctx context.Context) *Step {
	s, _ := ctx.Value(key{}).(*Step)
	return s
}
