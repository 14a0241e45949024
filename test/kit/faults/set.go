package faults

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Fault selects the calls that meet it.
type Fault[C any] interface {
	Matches(call C) bool
	// Window is how many matching calls pass first, and how many meet the fault then; 0 of these is all.
	Window() (skip, times int)
}

// Set is the faults in force. The zero Set has none.
type Set[C any, F Fault[C]] struct {
	mu   sync.Mutex
	list []*Injection[C, F]
}

// Injection is a fault in force.
type Injection[C any, F Fault[C]] struct {
	Fault   F
	set     *Set[C, F]
	release chan struct{} // closed by Release
	first   chan struct{} // closed when a call meets the fault
	seen    int           // matching calls
	hits    int
	last    C // that met the fault
	waiting int
}

// Inject puts a fault in force.
func (s *Set[C, F]) Inject(f F) *Injection[C, F] {
	in := &Injection[C, F]{Fault: f, set: s, release: make(chan struct{}), first: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, in)
	return in
}

// Meet counts a call and returns the faults that it meets, in the order of their injection.
func (s *Set[C, F]) Meet(call C) (met []*Injection[C, F]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.list {
		if !in.Fault.Matches(call) {
			continue
		}
		in.seen++
		skip, times := in.Fault.Window()
		if in.seen <= skip || times > 0 && in.hits >= times {
			continue
		}
		in.last = call
		if in.hits++; in.hits == 1 {
			close(in.first)
		}
		met = append(met, in)
	}
	return met
}

// Met are the faults that the last call like this one met, if they are still in force.
func (s *Set[C, F]) Met(call C) (met []*Injection[C, F]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.list {
		skip, times := in.Fault.Window()
		if in.Fault.Matches(call) && in.seen > skip && (times == 0 || in.seen <= skip+times) {
			met = append(met, in)
		}
	}
	return met
}

// ReleaseAll releases all faults.
func (s *Set[C, F]) ReleaseAll() {
	s.mu.Lock()
	list := slices.Clone(s.list)
	s.mu.Unlock()
	for _, in := range list {
		in.Release()
	}
}

// Release removes the fault. Calls that it holds continue.
func (in *Injection[C, F]) Release() {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	in.set.list = slices.DeleteFunc(in.set.list, func(o *Injection[C, F]) bool { return o == in })
	select {
	case <-in.release:
	default:
		close(in.release)
	}
}

// Released is closed by Release.
func (in *Injection[C, F]) Released() <-chan struct{} { return in.release }

// Hit is closed once a call has met the fault.
func (in *Injection[C, F]) Hit() <-chan struct{} { return in.first }

// Hits counts the calls that met the fault so far.
func (in *Injection[C, F]) Hits() int {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	return in.hits
}

// Last is the call that met the fault last, as it came.
func (in *Injection[C, F]) Last() C {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	return in.last
}

// Waiting counts the calls that the fault holds now.
func (in *Injection[C, F]) Waiting() int {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	return in.waiting
}

// Delay holds a call for a time, or until Release. The error is that of a context that ends first.
func (in *Injection[C, F]) Delay(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	return in.hold(ctx, t.C)
}

// Hang holds a call until Release. The error is that of a context that ends first.
func (in *Injection[C, F]) Hang(ctx context.Context) error { return in.hold(ctx, nil) }

func (in *Injection[C, F]) hold(ctx context.Context, end <-chan time.Time) error {
	in.count(1)
	defer in.count(-1)
	select {
	case <-end:
	case <-in.release:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (in *Injection[C, F]) count(n int) {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	in.waiting += n
}
