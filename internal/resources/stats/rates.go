package stats

import "time"

// sample is a value of the CPU time counter.
type sample struct {
	at    time.Time
	total time.Duration
}

// history are the samples of one cgroup from which rates are computed.
type history struct {
	from, last sample
	seen       bool // part of the current reading
}

// rates are the samples by cgroup.
type rates map[string]*history

// cores returns the rate in nanocores: over the last samples that are far enough apart, or since the start of the
// cgroup before there are any.
func (r rates) cores(path string, now sample, started time.Time) uint64 {
	h, known := r[path]
	if !known || now.total < h.last.total { // new, or recreated with the same name
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

// removeStale removes cgroups that were not part of the current reading.
func (r rates) removeStale() {
	for path, h := range r {
		if !h.seen {
			delete(r, path)
		}
		h.seen = false
	}
}
