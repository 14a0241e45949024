package cpu

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"

	"keelson/internal/host/machine"
	"keelson/internal/resources/numa"
)

// level is a level of the machine's topology. It returns the part that a CPU belongs to.
type level func(machine.CPU) int

func node(c machine.CPU) int   { return c.Node }
func socket(c machine.CPU) int { return c.Socket }
func cache(c machine.CPU) int  { return c.Cache }
func core(c machine.CPU) int   { return c.Core }

// layout is the topology of the machine's CPUs.
type layout struct {
	cpus map[int]machine.CPU
	all  cpuset.CPUSet
	// broad and narrow are NUMA nodes and sockets. Each broad part contains narrow ones.
	broad, narrow level
	perCore       int // threads of a core
}

func newLayout(m machine.Layout) *layout {
	l := &layout{cpus: make(map[int]machine.CPU, len(m.CPUs)), broad: node, narrow: socket}
	var ids []int
	for _, c := range m.CPUs {
		l.cpus[c.ID] = c
		ids = append(ids, c.ID)
	}
	l.all = cpuset.New(ids...)
	if len(l.ids(socket)) < len(l.ids(node)) {
		l.broad, l.narrow = socket, node
	}
	l.perCore = max(1, len(m.CPUs)/max(1, len(l.ids(core))))
	return l
}

// ids returns the IDs of the parts of a level.
func (l *layout) ids(of level) []int {
	var out []int
	for _, c := range l.cpus {
		out = append(out, of(c))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// part is the set of free CPUs of one part of the machine.
type part struct {
	id   int
	cpus []int // lowest number first; never empty
}

// parts groups CPUs by a level. Parts with the fewest free CPUs come first, so that parts in use are used up before
// free ones.
func (l *layout) parts(of []int, by level) []part {
	at := map[int][]int{}
	for _, id := range of {
		p := by(l.cpus[id])
		at[p] = append(at[p], id)
	}
	out := make([]part, 0, len(at))
	for id, cpus := range at {
		slices.Sort(cpus)
		out = append(out, part{id, cpus})
	}
	slices.SortFunc(out, func(a, b part) int {
		return cmp.Or(cmp.Compare(len(a.cpus), len(b.cpus)), cmp.Compare(a.id, b.id))
	})
	return out
}

// nested groups CPUs by one level after the other. It returns the parts of the last level in the order in which they
// are used up.
func (l *layout) nested(of []int, levels ...level) []part {
	if len(levels) == 1 {
		return l.parts(of, levels[0])
	}
	var out []part
	for _, p := range l.parts(of, levels[0]) {
		out = append(out, l.nested(p.cpus, levels[1:]...)...)
	}
	return out
}

// nodes returns the NUMA nodes in the order in which they are used up.
func (l *layout) nodes(of []int) []part {
	if len(l.ids(socket)) < len(l.ids(node)) {
		return l.nested(of, socket, node)
	}
	return l.parts(of, node)
}

// sockets returns the sockets in the order in which they are used up.
func (l *layout) sockets(of []int) []part {
	if len(l.ids(socket)) < len(l.ids(node)) {
		return l.parts(of, socket)
	}
	return l.nested(of, node, socket)
}

// size returns the number of CPUs of the whole part.
func (l *layout) size(by level, id int) int {
	n := 0
	for _, c := range l.cpus {
		if by(c) == id {
			n++
		}
	}
	return n
}

// inNodes returns the CPUs that belong to one of the nodes.
func (l *layout) inNodes(of cpuset.CPUSet, n numa.Nodes) cpuset.CPUSet {
	return l.filter(of, func(c machine.CPU) bool { return n.Has(c.Node) })
}

// onSocketsOf returns the CPUs that are on a socket of one of the nodes.
func (l *layout) onSocketsOf(of cpuset.CPUSet, n numa.Nodes) cpuset.CPUSet {
	on := map[int]bool{}
	for _, c := range l.cpus {
		if n.Has(c.Node) {
			on[c.Socket] = true
		}
	}
	return l.filter(of, func(c machine.CPU) bool { return on[c.Socket] })
}

// cores returns all threads of the cores of the CPUs.
func (l *layout) cores(of cpuset.CPUSet) cpuset.CPUSet {
	on := map[int]bool{}
	for _, id := range of.UnsortedList() {
		on[l.cpus[id].Core] = true
	}
	return l.filter(l.all, func(c machine.CPU) bool { return on[c.Core] })
}

func (l *layout) filter(of cpuset.CPUSet, keep func(machine.CPU) bool) cpuset.CPUSet {
	var out []int
	for _, id := range of.UnsortedList() {
		if c, known := l.cpus[id]; known && keep(c) {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}

// nodesOf returns the NUMA nodes of the CPUs.
func (l *layout) nodesOf(of cpuset.CPUSet) numa.Nodes {
	var n numa.Nodes
	for _, id := range of.UnsortedList() {
		n |= numa.NodesOf(l.cpus[id].Node)
	}
	return n
}
