package container

import "time"

// verb is a kind of call to the runtime that is expensive enough to be limited.
type verb int

const (
	runSandbox verb = iota
	createContainer
	startContainer
	stopSandbox
	removeSandbox
	removeContainer
	verbs // number of verbs
)

const (
	minLimit     = 2   // calls that are always allowed; with so few, the unloaded duration of a call shows
	initialLimit = 16  // limit before anything is measured
	maxLimit     = 256 // limit for a runtime that shows no contention

	// targetShare is the relative speed of a call at the optimal concurrency: calls take twice as
	// long as unloaded, so that for each one executing another one waits. Below that the runtime is
	// partly idle; above, calls only compete.
	targetShare = 0.5
	// growth is the factor by which the limit may rise while calls are as fast as unloaded.
	growth = 8
	// smoothing is the weight of one measurement.
	smoothing = 0.125
)

// pace computes the concurrency limit for calls to the runtime from the calls that completed: how
// long each took, and how many others were active.
//
// A call that takes n times its unloaded duration had one n-th of the resources. If all of the
// active calls have the share s, the throughput is active*s, whatever the bottleneck is. Whether
// more is possible only shows by allowing more. The unloaded duration is learned from calls that
// were nearly alone, and from those that were faster than expected. Until then an assumed duration
// is used, on which the limit during the first burst depends.
type pace struct {
	limit    float64
	unloaded [verbs]float64 // unloaded duration in seconds
	measured bool           // a call completed while others were waiting
}

func newPace() pace {
	return pace{
		limit: initialLimit,
		unloaded: [verbs]float64{
			runSandbox:      0.2,
			createContainer: 0.05,
			startContainer:  0.05,
			stopSandbox:     0.2,
			removeSandbox:   0.05,
			removeContainer: 0.05,
		},
	}
}

// learn takes in a completed call: its duration, the mean number of active calls including itself,
// and whether others were waiting.
func (p *pace) learn(v verb, took time.Duration, among float64, waiting bool) {
	d := took.Seconds()
	if d <= 0 {
		return
	}
	p.measured = p.measured || waiting
	alone := &p.unloaded[v]
	switch {
	case among <= minLimit && d < *alone:
		*alone += 0.5 * (d - *alone)
	case among <= minLimit: // or the machine was busy with something else
		*alone += 0.25 * (d - *alone)
	case d < *alone:
		*alone += smoothing * (d - *alone)
	}
	share := min(1, *alone/d)
	switch {
	case share < targetShare:
		p.towards(min(p.limit, among*share/targetShare))
	case waiting:
		p.towards(max(p.limit, among*(1+(growth-1)*(share-targetShare)/(1-targetShare))))
	}
}

// see takes in the idle share of the CPUs while active calls were running. Before the first calls
// complete, this is the only information about the runtime. If the calls are CPU-bound, the rest of
// the CPUs can take proportionally more; if they only wait for I/O, more do no harm.
func (p *pace) see(here int, idle float64) {
	if !p.measured {
		p.limit = min(max(p.limit, float64(here)/max(1-idle, 1./maxLimit)), maxLimit)
	}
}

func (p *pace) towards(limit float64) {
	p.limit += smoothing * (limit - p.limit)
	p.limit = min(max(p.limit, minLimit), maxLimit)
}
