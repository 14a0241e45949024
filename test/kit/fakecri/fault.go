package fakecri

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/test/kit/faults"
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
	// After lets the call take effect first: the fault then delays, replaces or holds
	// the answer.
	After bool
	// Lie names one of [Lies]: the call takes effect, but its answer, or each message
	// of its stream, is wrong.
	Lie string
	// Idle makes the call succeed without an effect.
	Idle bool
	// Dies disconnects the runtime during the call, as Disconnect does: before the call
	// takes effect or, with After, once it has taken effect. Neither an answer nor an
	// event reports the effect.
	Dies bool
	// Late delays the effect of the call until its caller has given up waiting for the
	// answer, and by this much more. The caller's context must end.
	Late time.Duration
	// Only, when set, must also report true for a call.
	Only func(Call) bool

	death *death
}

// death is the end of the runtime with a call that met a fault.
type death struct {
	once sync.Once
	done chan struct{}
}

func (d *death) happens() { d.once.Do(func() { close(d.done) }) }

type injection = faults.Injection[Call, Fault]

// Injection is a fault in force.
type Injection struct{ *injection }

// Inject puts a fault in force. Several may match one call: their delays add
// up and the first failure wins.
func (r *Runtime) Inject(f Fault) *Injection {
	if f.Lie != "" && Lies[f.Lie] == nil {
		panic("fakecri: there is no lie " + f.Lie)
	}
	f.death = &death{done: make(chan struct{})}
	return &Injection{r.faults.Inject(f)}
}

// Dead is closed once the runtime has disconnected during a call that met the fault. With
// After that can be long after Hit is closed: the call takes effect first.
func (in *Injection) Dead() <-chan struct{} { return in.Fault.death.done }

// Matches reports whether the selectors match a call.
func (f Fault) Matches(c Call) bool {
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

// Window returns Skip and Times.
func (f Fault) Window() (skip, times int) { return f.Skip, f.Times }

// before counts a call and applies the faults that come before its effect.
func (r *Runtime) before(ctx context.Context, c Call) (late met, err error) {
	var now met
	for _, in := range r.faults.Meet(c) {
		if f := in.Fault; f.After || f.Idle || f.Dies || f.Late > 0 {
			late = append(late, in)
		} else {
			now = append(now, in)
		}
	}
	return late, now.after(ctx)
}

// lies are the names of the lies that change the answer to a call.
func (r *Runtime) lies(c Call) (names []string) {
	for _, in := range r.faults.Met(c) {
		if in.Fault.Lie != "" {
			names = append(names, in.Fault.Lie)
		}
	}
	return names
}

// idle reports whether a call must have no effect.
func (list met) idle() bool {
	return slices.ContainsFunc(list, func(in *injection) bool { return in.Fault.Idle })
}

// dies is the fault that disconnects the runtime during a call, or nil.
func (list met) dies() *injection {
	for _, in := range list {
		if in.Fault.Dies {
			return in
		}
	}
	return nil
}

// late waits, if a fault makes the call late, until its caller has given up and the fault's
// time has passed. It reports whether the call is late.
func (list met) late(ctx context.Context) bool {
	for _, in := range list {
		if in.Fault.Late == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-in.Released():
			return false
		}
		t := time.NewTimer(in.Fault.Late)
		defer t.Stop()
		select {
		case <-t.C:
		case <-in.Released():
		}
		return true
	}
	return false
}

// met are the faults that apply to a call.
type met []*injection

func (list met) after(ctx context.Context) error {
	for _, in := range list {
		if err := in.Delay(ctx, in.Fault.Delay); err != nil {
			return status.FromContextError(err).Err()
		}
		if in.Fault.Hang {
			if err := in.Hang(ctx); err != nil {
				return status.FromContextError(err).Err()
			}
			continue
		}
		if in.Fault.Code != codes.OK {
			msg := in.Fault.Message
			if msg == "" {
				msg = "injected failure of " + in.Fault.Method
			}
			return status.Error(in.Fault.Code, msg)
		}
	}
	return nil
}
