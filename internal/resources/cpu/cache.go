package cpu

import "slices"

// takeByCache takes whole caches while at least one cache's worth is needed. It takes the remainder from the first
// cache that can provide all of it. If no cache can, it takes nothing for the remainder.
func (t *accumulator) takeByCache() {
	perCache := t.perCache()
	for _, c := range t.caches() {
		if t.need >= perCache {
			t.takeWhole(t.caches(), cache)
		}
		if t.need == 0 {
			return
		}
		if some := t.ofCache(c.id); len(some) == t.need {
			t.take(some...)
			return
		}
	}
}

// caches returns the caches with free CPUs, in the order in which they are used up.
func (t *accumulator) caches() []part {
	var out []part
	for _, n := range t.nodes(t.free) {
		out = append(out, t.parts(n.cpus, cache)...)
	}
	return out
}

// ofCache returns the CPUs that one cache would contribute: those of as many cores as are needed, lowest first. If an
// odd number of CPUs is needed, the last core contributes one thread less.
func (t *accumulator) ofCache(id int) []int {
	var left []int
	for _, cpu := range t.free {
		if t.cpus[cpu].Cache == id {
			left = append(left, cpu)
		}
	}
	var cores []int
	for _, cpu := range left {
		cores = append(cores, t.cpus[cpu].Core)
	}
	slices.Sort(cores)
	cores = slices.Compact(cores)
	if n := (t.need + t.perCore - 1) / t.perCore; len(cores) > n {
		cores = cores[:n]
	}
	some := slices.DeleteFunc(left, func(cpu int) bool { return !slices.Contains(cores, t.cpus[cpu].Core) })
	slices.Sort(some)
	if t.need%2 != 0 && t.perCore > 1 && len(some) > t.need {
		some = some[:len(some)-1]
	}
	return some
}

// perCache returns the number of CPUs that share a cache.
func (l *layout) perCache() int { return max(1, len(l.cpus)/max(1, len(l.ids(cache)))) }
