package container

import "time"

// verb is a call that costs the runtime something, told apart by what it takes.
type verb int

const (
	runSandbox verb = iota
	createContainer
	startContainer
	stopSandbox
	removeSandbox
	removeContainer
	verbs // how many there are
)

const (
	fewest = 2   // calls that are always let go; so few show what a call takes alone
	begun  = 16  // calls let go while nothing is known
	most   = 256 // calls let go to a runtime that shows no limit

	// half is the share of its speed that a call is left where the runtime is used
	// best: calls take twice as long as alone, and one waits there for each that is
	// worked on. Fewer would leave it idle between two, more only share.
	half = 0.5
	// leap is how many times as many calls are tried when those there now take no
	// longer than alone.
	leap = 8
	// lesson is how much of what one call says is believed.
	lesson = 0.125
)

// pace says how many calls at a time the runtime serves best. It learns from
// calls that came back: how long each took, and among how many.
//
// A call that takes n times as long as alone had one n-th of what it could use.
// So among calls that each have the share s the runtime does the work of among*s,
// whatever it is that they share, and whether it is more is told only by letting
// more go. What a call takes alone is learned from those that were nearly so, and
// from those that were faster than thought. Until then it is assumed: the first
// burst of all needs a guess.
type pace struct {
	limit  float64
	alone  [verbs]float64 // seconds
	taught bool           // by a call that came back while others waited
}

func newPace() pace {
	return pace{limit: begun, alone: [verbs]float64{runSandbox: 0.2, createContainer: 0.05, startContainer: 0.05,
		stopSandbox: 0.2, removeSandbox: 0.05, removeContainer: 0.05}}
}

// learn takes in that a call took that long among so many on average, itself
// included, while others waited for their turn or not.
func (p *pace) learn(v verb, took time.Duration, among float64, waiting bool) {
	d := took.Seconds()
	if d <= 0 {
		return
	}
	p.taught = p.taught || waiting
	alone := &p.alone[v]
	switch {
	case among <= fewest && d < *alone:
		*alone += 0.5 * (d - *alone)
	case among <= fewest: // or the machine was busy with something else
		*alone += 0.25 * (d - *alone)
	case d < *alone:
		*alone += lesson * (d - *alone)
	}
	share := min(1, *alone/d)
	switch {
	case share < half:
		p.towards(min(p.limit, among*share/half))
	case waiting:
		p.towards(max(p.limit, among*(1+(leap-1)*(share-half)/(1-half))))
	}
}

// see takes in that the processors had nothing to do for a share of the time while
// that many calls were there, which is all that tells of a runtime before the first
// calls come back. If what they do keeps the others busy, as many more as fill the
// rest do no harm; if they only wait for something, any number does none.
func (p *pace) see(here int, idle float64) {
	if !p.taught {
		p.limit = min(max(p.limit, float64(here)/max(1-idle, 1./most)), most)
	}
}

func (p *pace) towards(limit float64) {
	p.limit += lesson * (limit - p.limit)
	p.limit = min(max(p.limit, fewest), most)
}
