package cpu

import (
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// choose takes n of the free CPUs by the options.
func (l *layout) choose(free cpuset.CPUSet, n int, o Options) (cpuset.CPUSet, error) {
	if n == 0 {
		return cpuset.New(), nil
	}
	if free.Size() < n {
		return cpuset.New(), fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free.Size())
	}
	if o.AcrossNUMA {
		group := 1
		if o.FullCores {
			group = l.perCore
		}
		if got, ok := l.spread(free, n, group, o); ok {
			return got, nil
		}
		o.ByCache = false
	}
	return l.pack(free, n, o), nil
}

// taking is a choice under way.
type taking struct {
	*layout
	free []int
	need int
	got  []int
}

func (t *taking) take(cpus ...int) {
	t.got = append(t.got, cpus...)
	t.need -= len(cpus)
	t.free = slices.DeleteFunc(t.free, func(id int) bool { return slices.Contains(cpus, id) })
}

// pack takes n of the free CPUs, of which there are as many, in as few parts as it
// can: whole nodes and sockets, whole caches, whole cores, and what is then needed of
// the cores that are broken most.
func (l *layout) pack(free cpuset.CPUSet, n int, o Options) cpuset.CPUSet {
	t := &taking{layout: l, free: free.List(), need: n}
	t.whole(l.parts(t.free, l.broad), l.broad)
	t.whole(l.nested(t.free, l.broad, l.narrow), l.narrow)
	if o.ByCache {
		t.byCache()
	}
	if o.AcrossCores {
		t.rest(l.sockets(t.free))
	} else {
		t.whole(l.nested(t.free, l.broad, l.narrow, core), core)
		t.rest(l.nested(t.free, l.broad, l.narrow, core))
	}
	return cpuset.New(t.got...)
}

// whole takes those of the parts of which nothing is gone, as long as all of it is
// needed.
func (t *taking) whole(parts []part, by level) {
	for _, p := range parts {
		if full := t.size(by, p.id); len(p.cpus) == full && t.need >= full {
			t.take(p.cpus...)
		}
	}
}

// rest takes one CPU after the other.
func (t *taking) rest(parts []part) {
	for _, p := range parts {
		t.take(p.cpus[:min(t.need, len(p.cpus))]...)
	}
}
