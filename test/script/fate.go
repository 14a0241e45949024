package script

import (
	"sync"
	"time"

	"keelson/test/kit/fakecri"
)

// fate is what may become of a call whose answer is lost.
type fate struct {
	name   string
	fault  fakecri.Fault
	config string // of the agent
	// strict has the scenario come to the same end where no time is lost. It may not:
	// what happens at one moment happens in any order, and who comes later misses what
	// others went through.
	strict bool
}

// fates are all there are: the runtime is gone before it has done what it was asked for,
// or once it has, or it does it when the agent has given up, before or after that has
// asked for it again.
var fates = []fate{
	{name: "not done", fault: fakecri.Fault{Dies: true}},
	{name: "done", fault: fakecri.Fault{Dies: true, After: true}},
	{name: "done late", fault: fakecri.Fault{Late: 500 * time.Millisecond}, config: "runtimeRequestTimeout: 2s\n"},
	{name: "done later", fault: fakecri.Fault{Late: 1500 * time.Millisecond}, config: "runtimeRequestTimeout: 2s\n"},
}

// meets reports whether a call can have that fate. A pull is never abandoned.
func (f *fate) meets(c fakecri.Call) bool {
	return writing[c.Method] && (f.fault.Dies || c.Method != "PullImage")
}

// diverges reports whether other things may happen than would otherwise.
func (f *fate) diverges() bool { return !f.strict || f.fault.Late > 0 }

// breaks reports whether a scenario may well be unable to go on with a step: what is to
// happen to a container cannot if it is not there at that moment. What is waited for
// comes, if no time is lost.
func (f *fate) breaks(st step) bool {
	return f != nil && (f.diverges() || st.args[0] != "wait")
}

// doom is a call that meets its fate.
type doom struct {
	*fakecri.Injection
	over chan struct{}
	wg   sync.WaitGroup
}

// meet has a call meet its fate. A runtime that is gone for it is back soon.
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

// end lets go of a call that was not made.
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

// setDown notes that the scenario takes the runtime away or brings it back.
func (w *World) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}
