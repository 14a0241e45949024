package script

import (
	"sync"
	"time"

	"keelson/test/kit/fakecri"
)

// fate is what happens to a call whose answer is lost.
type fate struct {
	name   string
	fault  fakecri.Fault
	config string // of the agent
	// strict requires that the scenario comes to the same end if the call is not late. That
	// does not hold for all scenarios: things that happen at the same moment may happen in
	// any order.
	strict bool
}

// fates are all fates: the runtime dies before or after the call takes effect, or the call takes
// effect after the agent has given up, before or after the agent has repeated it.
var fates = []fate{
	{name: "not done", fault: fakecri.Fault{Dies: true}},
	{name: "done", fault: fakecri.Fault{Dies: true, After: true}},
	{name: "done late", fault: fakecri.Fault{Late: 500 * time.Millisecond}, config: "runtimeRequestTimeout: 2s\n"},
	{name: "done later", fault: fakecri.Fault{Late: 1500 * time.Millisecond}, config: "runtimeRequestTimeout: 2s\n"},
}

// meets reports whether a call can have that fate. A pull has no timeout, so it cannot be late.
func (f *fate) meets(c fakecri.Call) bool {
	return writing[c.Method] && (f.fault.Dies || c.Method != "PullImage")
}

// diverges reports whether the scenario may take another course because of the fate.
func (f *fate) diverges() bool { return !f.strict || f.fault.Late > 0 }

// breaks reports whether a step may fail because of the fate: a step on a container fails if the
// container does not exist at that moment. A wait must succeed, if the scenario cannot take
// another course.
func (f *fate) breaks(st step) bool {
	return f != nil && (f.diverges() || st.args[0] != "wait")
}

// doom is a call that meets its fate.
type doom struct {
	*fakecri.Injection
	over chan struct{}
	wg   sync.WaitGroup
}

// meet makes a call meet its fate. A runtime that dies with the call is back soon.
func (w *World) meet(f *fate, at int) {
	fault := f.fault
	fault.Skip, fault.Times, fault.Only = at-1, 1, f.meets
	d := &doom{Injection: w.Runtime.Inject(fault), over: make(chan struct{})}
	w.doom = d
	d.wg.Go(func() {
		select {
		case <-d.Dead():
		case <-d.over:
			return
		}
		time.Sleep(reviveAfter)
		w.mu.Lock()
		down := w.down
		w.mu.Unlock()
		if !down {
			w.Connect()
		}
	})
}

// end ends the fate of a call that was not made.
func (d *doom) end() {
	if d != nil {
		close(d.over)
		d.wg.Wait()
	}
}

// fated is the call that has met its fate.
func (d *doom) fated() string {
	if d == nil || d.Hits() == 0 {
		return ""
	}
	call := d.Last()
	return call.Method + " " + call.Key()
}

// setDown records that the scenario disconnects the runtime or connects it again.
func (w *World) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}
