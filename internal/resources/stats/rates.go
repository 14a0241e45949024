package stats

import "time"

// sample is a counter of CPU time at a moment.
type sample struct {
	at    time.Time
	total time.Duration
}

// history are the samples of one group that rates are made from.
type history struct {
	from, last sample
	seen       bool // in the reading that is being made
}

// rates remembers samples by group.
type rates map[string]*history

// cores is the rate in nanocores at this sample: over the last samples that are
// far enough apart, or since the group's start before there are any.
func (r rates) cores(path string, now sample, started time.Time) uint64 {
	h, known := r[path]
	if !known || now.total < h.last.total { // new, or made anew under the same name
		h = &history{from: sample{at: started}, last: now, seen: true}
		r[path] = h
		return speed(h.from, now)
	}
	h.seen = true
	if now.at.Sub(h.last.at) >= window {
		h.from, h.last = h.last, now
	}
	return speed(h.from, now)
}

func speed(from, to sample) uint64 {
	took := to.at.Sub(from.at)
	if took <= 0 || to.total < from.total {
		return 0
	}
	return uint64(float64(to.total-from.total) / took.Seconds())
}

// sweep forgets the groups that the reading did not come by.
func (r rates) sweep() {
	for path, h := range r {
		if !h.seen {
			delete(r, path)
		}
		h.seen = false
	}
}
