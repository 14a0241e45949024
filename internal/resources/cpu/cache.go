package cpu

import "slices"

// byCache takes whole caches while more is needed than one has, and what remains from
// the first cache that has all of it left. Where none has, nothing is taken for it.
func (t *taking) byCache() {
	perCache := t.perCache()
	for _, c := range t.caches() {
		if t.need >= perCache {
			t.whole(t.caches(), cache)
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

// caches are those with anything left, in the order in which they are used up.
func (t *taking) caches() []part {
	var out []part
	for _, n := range t.nodes(t.free) {
		out = append(out, t.parts(n.cpus, cache)...)
	}
	return out
}

// ofCache is what the cores of one cache would give to what is needed: as many cores
// as that takes, lowest first, and of the last of them one thread less where an odd
// number is needed.
func (t *taking) ofCache(id int) []int {
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

// perCache is how many CPUs share one cache.
func (l *layout) perCache() int { return max(1, len(l.cpus)/max(1, len(l.ids(cache)))) }
