package topology

import (
	"cmp"
	"maps"
	"slices"
)

// Hint is a set of NUMA nodes that a request could be met from.
type Hint struct {
	Nodes     Nodes // empty: any will do
	Preferred bool  // no narrower set could ever meet it
}

// Hints are what one who hands out resources says to a request, by resource. None
// for a resource means that it cannot be met from any nodes; a resource that is not
// named has no say.
type Hints map[string][]Hint

// Policy is what becomes of a container whose resources are not near each other.
type Policy string

// The policies, as the configuration names them.
const (
	None           Policy = "none"             // nobody looks
	BestEffort     Policy = "best-effort"      // it runs
	Restricted     Policy = "restricted"       // it is refused, if another machine like this one could do better
	SingleNUMANode Policy = "single-numa-node" // it is refused unless one node has it all
)

// Rules are a node's policy and what it needs to know of the machine.
type Rules struct {
	Policy Policy
	Nodes  Nodes // all that the machine has
	// Distance is how far the memory of node b is for a CPU of node a. Where it is
	// set, the closest of several sets of one size is the best.
	Distance func(a, b int) int
}

// Merge finds the set of nodes that suits all, and reports whether the container may
// run. Where nobody has a say, or nobody looks, any nodes will do.
func (r Rules) Merge(all []Hints) (best Hint, admit bool) {
	if r.Policy == None {
		return Hint{}, true
	}
	lists := r.lists(all)
	best = Hint{Nodes: r.Nodes}
	var found bool
	most := widestNeed(lists)
	for h := range r.merged(lists) {
		if h.Nodes != 0 && (!found || r.better(h, best, most)) {
			best, found = h, true
		}
	}
	if r.Policy == SingleNUMANode && best.Nodes == r.Nodes {
		best.Nodes = 0 // all nodes, where one was asked for, is no word on any
	}
	return best, r.Policy == BestEffort || best.Preferred
}

// lists are the hints of every resource that somebody has a say on, with those left
// out that the policy cannot use.
func (r Rules) lists(all []Hints) [][]Hint {
	var out [][]Hint
	for _, hints := range all {
		for _, name := range slices.Sorted(maps.Keys(hints)) {
			list := hints[name]
			if len(list) == 0 {
				list = []Hint{{}} // it cannot be met: anywhere is as bad
			}
			if r.Policy == SingleNUMANode {
				list = slices.DeleteFunc(slices.Clone(list), func(h Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 })
			}
			out = append(out, list)
		}
	}
	if out == nil {
		return [][]Hint{{{Preferred: true}}}
	}
	return out
}

// merged are the distinct outcomes of taking one hint from each list: the nodes that
// all of them have, preferred if each one is and they name the same.
func (r Rules) merged(lists [][]Hint) map[Hint]bool {
	anywhere := Hint{Preferred: true}
	at := map[Hint]bool{anywhere: true}
	for _, list := range lists {
		next := map[Hint]bool{}
		for have := range at {
			for _, h := range list {
				next[join(have, h, r.Nodes)] = true
			}
		}
		at = next
	}
	out := make(map[Hint]bool, len(at))
	for h := range at {
		switch h.Nodes {
		case 0:
			h.Nodes = r.Nodes
		case disjoint:
			h.Nodes = 0
		}
		out[h] = true
	}
	return out
}

// disjoint stands, while hints are joined, for those that have no node in common:
// the empty set is taken for "anywhere".
const disjoint = ^Nodes(0)

func join(a, b Hint, all Nodes) Hint {
	preferred := a.Preferred && b.Preferred
	switch {
	case b.Nodes == 0:
		return Hint{a.Nodes, preferred}
	case a.Nodes == 0:
		return Hint{orDisjoint(b.Nodes & all), preferred}
	case a.Nodes == disjoint:
		return Hint{disjoint, false}
	}
	// Two sets that differ are met only halfway.
	return Hint{orDisjoint(a.Nodes & b.Nodes), preferred && a.Nodes == b.Nodes}
}

func orDisjoint(n Nodes) Nodes {
	if n == 0 {
		return disjoint
	}
	return n
}

// widestNeed is how many nodes the resource takes that cannot do with fewer: a set
// of that size is the best that can be had where none is preferred.
func widestNeed(lists [][]Hint) int {
	most := 0
	for _, list := range lists {
		least := 0
		for _, h := range list {
			if n := h.Nodes.Count(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		most = max(most, least)
	}
	return most
}

// better reports whether a is to be had before b. Sets that no resource prefers are
// best with as many nodes as the most demanding one takes; then with fewer, the more
// the better; then with more.
func (r Rules) better(a, b Hint, most int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	if a.Preferred {
		return r.narrower(a.Nodes, b.Nodes)
	}
	m, n := a.Nodes.Count(), b.Nodes.Count()
	if by := cmp.Compare(place(m, most), place(n, most)); by != 0 {
		return by < 0
	}
	if m != n && m < most {
		return m > n
	}
	return r.narrower(a.Nodes, b.Nodes)
}

// place is where a count of nodes stands: at the wanted one, below, or above.
func place(count, wanted int) int {
	switch {
	case count == wanted:
		return 0
	case count < wanted:
		return 1
	}
	return 2
}

// narrower reports whether a is to be had before b for its size and, where that
// counts, for how close its nodes are.
func (r Rules) narrower(a, b Nodes) bool {
	if r.Distance == nil || a.Count() != b.Count() {
		return a.NarrowerThan(b)
	}
	if da, db := r.distance(a), r.distance(b); da != db {
		return da < db
	}
	return a < b
}

// distance is the average one between the nodes of a set, each to itself included.
func (r Rules) distance(n Nodes) float64 {
	ids, sum := n.IDs(), 0
	for _, a := range ids {
		for _, b := range ids {
			sum += r.Distance(a, b)
		}
	}
	return float64(sum) / float64(len(ids)*len(ids))
}
