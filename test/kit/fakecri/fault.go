package fakecri

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault makes calls slow, fail or hang. Empty selectors match everything.
type Fault struct {
	Method    string // RunPodSandbox
	Pod       string // name, or namespace/name
	Container string
	Image     string

	Skip  int // let this many matching calls pass first
	Times int // then hit this many; 0 = until removed

	Delay   time.Duration
	Code    codes.Code // the call fails with this, unless OK
	Message string
	Hang    bool // the call does not return before Release, or its caller's deadline
	// After lets the call take effect first: the delay, failure or hang then
	// meets the answer on its way back.
	After bool
	// Lie names one of [Lies]: the call does its work, and its answer, or each
	// message of its stream, is nonsense.
	Lie string
	// Idle makes the call answer as if it had done its work, of which it does
	// nothing.
	Idle bool
	// Dies takes the runtime away with the call, as Disconnect does: before the call
	// has done anything or, with After, once it has done it all. Nobody hears of it,
	// neither by an answer nor by an event.
	Dies bool
	// Late has the call do its work only when its caller has given up waiting for the
	// answer, and this much later still. The caller's context must end.
	Late time.Duration
	// Only, when set, selects calls too.
	Only func(Call) bool
}

// Injection is a fault in force.
type Injection struct {
	fault   Fault
	owner   *faults
	release chan struct{} // closed by Release
	first   chan struct{} // closed when a call is hit
	dead    chan struct{} // closed when the runtime has died with one
	seen    int
	hits    int
	last    Call // that was hit
	waiting int
}

type faults struct {
	mu   sync.Mutex
	list []*Injection
}

// Inject puts a fault in force. Several may match one call: their delays add
// up and the first failure wins.
func (r *Runtime) Inject(f Fault) *Injection {
	if f.Lie != "" && Lies[f.Lie] == nil {
		panic("fakecri: there is no lie " + f.Lie)
	}
	in := &Injection{fault: f, owner: &r.faults, release: make(chan struct{}), first: make(chan struct{}), dead: make(chan struct{})}
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.list = append(r.faults.list, in)
	return in
}

// Release takes the fault out of force and lets hanging calls go on as if
// there had been none.
func (in *Injection) Release() {
	in.owner.mu.Lock()
	defer in.owner.mu.Unlock()
	in.owner.list = slices.DeleteFunc(in.owner.list, func(o *Injection) bool { return o == in })
	select {
	case <-in.release:
	default:
		close(in.release)
	}
}

// Hit is closed once a call has met the fault.
func (in *Injection) Hit() <-chan struct{} { return in.first }

// Dead is closed once the runtime has gone away with a call that met the fault. With
// After that may be long after it was hit: the call is done first.
func (in *Injection) Dead() <-chan struct{} { return in.dead }

// Hits counts the calls that met the fault so far.
func (in *Injection) Hits() int {
	in.owner.mu.Lock()
	defer in.owner.mu.Unlock()
	return in.hits
}

// Last is the call that met the fault last, as it came.
func (in *Injection) Last() Call {
	in.owner.mu.Lock()
	defer in.owner.mu.Unlock()
	return in.last
}

// Waiting counts the calls that hang now, or that the fault delays.
func (in *Injection) Waiting() int {
	in.owner.mu.Lock()
	defer in.owner.mu.Unlock()
	return in.waiting
}

func (f *faults) releaseAll() {
	f.mu.Lock()
	list := slices.Clone(f.list)
	f.mu.Unlock()
	for _, in := range list {
		in.Release()
	}
}

func (f Fault) matches(c Call) bool {
	if f.Method != "" && f.Method != c.Method || f.Container != "" && f.Container != c.Container {
		return false
	}
	if f.Only != nil && !f.Only(c) {
		return false
	}
	if f.Image != "" && normal(f.Image) != normal(c.Image) {
		return false
	}
	return f.Pod == "" || f.Pod == c.Pod || strings.HasSuffix(c.Pod, "/"+f.Pod)
}

// met returns the faults that hit this call, and counts them.
func (f *faults) met(c Call) (now, late met) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.list {
		if !in.fault.matches(c) {
			continue
		}
		in.seen++
		if in.seen <= in.fault.Skip || in.fault.Times > 0 && in.hits >= in.fault.Times {
			continue
		}
		in.last = c
		if in.hits++; in.hits == 1 {
			close(in.first)
		}
		if in.fault.After || in.fault.Idle || in.fault.Dies || in.fault.Late > 0 {
			late = append(late, in)
		} else {
			now = append(now, in)
		}
	}
	return now, late
}

// before applies the faults that come before the effect of a call.
func (f *faults) before(ctx context.Context, c Call) (late met, err error) {
	now, late := f.met(c)
	return late, now.after(ctx)
}

// lies are what makes nonsense of the answer to a call, by their names.
func (f *faults) lies(c Call) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.list {
		if in.fault.Lie != "" && in.fault.matches(c) && in.seen > in.fault.Skip && (in.fault.Times == 0 || in.seen <= in.fault.Skip+in.fault.Times) {
			names = append(names, in.fault.Lie)
		}
	}
	return names
}

// idle reports whether a call is to do nothing.
func (list met) idle() bool {
	return slices.ContainsFunc(list, func(in *Injection) bool { return in.fault.Idle })
}

// dies is the fault by which the runtime goes away with a call, or nil.
func (list met) dies() *Injection {
	for _, in := range list {
		if in.fault.Dies {
			return in
		}
	}
	return nil
}

// died tells that the runtime has gone away by the fault.
func (in *Injection) died() {
	in.owner.mu.Lock()
	defer in.owner.mu.Unlock()
	select {
	case <-in.dead:
	default:
		close(in.dead)
	}
}

// late waits until the caller of a call that comes too late has given up, and for as
// long as it takes then. It reports whether the call is one.
func (list met) late(ctx context.Context) bool {
	for _, in := range list {
		if in.fault.Late == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-in.release:
			return false
		}
		t := time.NewTimer(in.fault.Late)
		defer t.Stop()
		select {
		case <-t.C:
		case <-in.release:
		}
		return true
	}
	return false
}

// met are faults that a call has to go through.
type met []*Injection

func (list met) after(ctx context.Context) error {
	for _, in := range list {
		if err := in.delay(ctx); err != nil {
			return err
		}
		if in.fault.Hang {
			if err := in.hang(ctx); err != nil {
				return err
			}
			continue
		}
		if in.fault.Code != codes.OK {
			msg := in.fault.Message
			if msg == "" {
				msg = "injected failure of " + in.fault.Method
			}
			return status.Error(in.fault.Code, msg)
		}
	}
	return nil
}

// delay lets the fault's delay pass.
func (in *Injection) delay(ctx context.Context) error {
	if in.fault.Delay == 0 {
		return nil
	}
	in.count(1)
	defer in.count(-1)
	t := time.NewTimer(in.fault.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-in.release:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// count adds to the calls that wait.
func (in *Injection) count(n int) {
	in.owner.mu.Lock()
	defer in.owner.mu.Unlock()
	in.waiting += n
}

func (in *Injection) hang(ctx context.Context) error {
	in.count(1)
	defer in.count(-1)
	select {
	case <-in.release:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
