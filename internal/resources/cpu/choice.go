package cpu

import (
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// choose selects n of the free CPUs according to the options.
func (l *layout) choose(free cpuset.CPUSet, n int, o Options) (cpuset.CPUSet, error) {
	if n == 0 {
		return cpuset.New(), nil
	}
	if free.Size() < n {
		return cpuset.New(), fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n,
			free.Size())
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

// accumulator is the state of one allocation: the free CPUs, the number still needed, and the CPUs taken.
type accumulator struct {
	*layout
	free  []int
	need  int
	taken []int
}

func (t *accumulator) take(cpus ...int) {
	t.taken = append(t.taken, cpus...)
	t.need -= len(cpus)
	t.free = slices.DeleteFunc(t.free, func(id int) bool { return slices.Contains(cpus, id) })
}

// pack takes n of the free CPUs, which must be at least n, from as few parts as possible: whole nodes and sockets,
// whole caches, whole cores, and the remainder from the cores with the fewest free threads.
func (l *layout) pack(free cpuset.CPUSet, n int, o Options) cpuset.CPUSet {
	t := &accumulator{layout: l, free: free.List(), need: n}
	t.takeWhole(l.parts(t.free, l.broad), l.broad)
	t.takeWhole(l.nested(t.free, l.broad, l.narrow), l.narrow)
	if o.ByCache {
		t.takeByCache()
	}
	if o.AcrossCores {
		t.takeSingle(l.sockets(t.free))
	} else {
		t.takeWhole(l.nested(t.free, l.broad, l.narrow, core), core)
		t.takeSingle(l.nested(t.free, l.broad, l.narrow, core))
	}
	return cpuset.New(t.taken...)
}

// takeWhole takes the parts that are entirely free, as long as all of their CPUs are needed.
func (t *accumulator) takeWhole(parts []part, by level) {
	for _, p := range parts {
		if full := t.size(by, p.id); len(p.cpus) == full && t.need >= full {
			t.take(p.cpus...)
		}
	}
}

// takeSingle takes CPUs one at a time.
func (t *accumulator) takeSingle(parts []part) {
	for _, p := range parts {
		t.take(p.cpus[:min(t.need, len(p.cpus))]...)
	}
}
