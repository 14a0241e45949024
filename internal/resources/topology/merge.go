package topology

import (
	"cmp"
	"maps"
	"slices"

	"keelson/internal/resources/numa"
)

// Policy is a topology manager policy.
type Policy string

// The policies, as named in the configuration.
const (
	None           Policy = "none"             // no alignment
	BestEffort     Policy = "best-effort"      // a container without alignment is admitted
	Restricted     Policy = "restricted"       // it is rejected if an empty machine could align it
	SingleNUMANode Policy = "single-numa-node" // it is rejected unless a single node has all of its resources
)

// Rules are the policy and the machine's NUMA nodes.
type Rules struct {
	Policy Policy
	Nodes  numa.Nodes // all nodes of the machine
	// Distance returns the distance from node a to node b. If it is set, the closest of several sets of the same size
	// is preferred.
	Distance func(a, b int) int
}

// Merge merges the hints of all providers into the best NUMA affinity, and reports whether the policy admits the
// container. Without hints, or with the policy none, there is no affinity.
func (r Rules) Merge(all []numa.Hints) (best numa.Hint, admit bool) {
	if r.Policy == None {
		return numa.Hint{}, true
	}
	lists := r.lists(all)
	best = numa.Hint{Nodes: r.Nodes}
	var found bool
	most := widestMinimum(lists)
	for h := range r.merged(lists) {
		if h.Nodes != 0 && (!found || r.better(h, best, most)) {
			best, found = h, true
		}
	}
	if r.Policy == SingleNUMANode && best.Nodes == r.Nodes {
		best.Nodes = 0 // all nodes: no affinity
	}
	return best, r.Policy == BestEffort || best.Preferred
}

// lists returns the hints of every resource with an affinity, without those that the policy excludes.
func (r Rules) lists(all []numa.Hints) [][]numa.Hint {
	var out [][]numa.Hint
	for _, hints := range all {
		for _, name := range slices.Sorted(maps.Keys(hints)) {
			list := hints[name]
			if len(list) == 0 {
				list = []numa.Hint{{}} // cannot be allocated on any nodes
			}
			if r.Policy == SingleNUMANode {
				list = slices.DeleteFunc(slices.Clone(list),
					func(h numa.Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 })
			}
			out = append(out, list)
		}
	}
	if out == nil {
		return [][]numa.Hint{{{Preferred: true}}}
	}
	return out
}

// merged returns the distinct merges of one hint from each list: the intersection of their nodes. A merge is preferred
// if all of its hints are preferred and have the same nodes.
func (r Rules) merged(lists [][]numa.Hint) map[numa.Hint]bool {
	anywhere := numa.Hint{Preferred: true}
	at := map[numa.Hint]bool{anywhere: true}
	for _, list := range lists {
		next := map[numa.Hint]bool{}
		for have := range at {
			for _, h := range list {
				next[join(have, h, r.Nodes)] = true
			}
		}
		at = next
	}
	out := make(map[numa.Hint]bool, len(at))
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

// disjoint stands for an empty intersection during a merge, because the empty set means any node.
const disjoint = ^numa.Nodes(0)

func join(a, b numa.Hint, all numa.Nodes) numa.Hint {
	preferred := a.Preferred && b.Preferred
	switch {
	case b.Nodes == 0:
		return numa.Hint{Nodes: a.Nodes, Preferred: preferred}
	case a.Nodes == 0:
		return numa.Hint{Nodes: orDisjoint(b.Nodes & all), Preferred: preferred}
	case a.Nodes == disjoint:
		return numa.Hint{Nodes: disjoint}
	}
	// Hints with different nodes do not make a preferred merge.
	return numa.Hint{Nodes: orDisjoint(a.Nodes & b.Nodes), Preferred: preferred && a.Nodes == b.Nodes}
}

func orDisjoint(n numa.Nodes) numa.Nodes {
	if n == 0 {
		return disjoint
	}
	return n
}

// widestMinimum returns the maximum over all resources of the minimum number of nodes. Without a preferred hint, sets
// of this size are best.
func widestMinimum(lists [][]numa.Hint) int {
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

// better reports whether a is better than b. Among hints that are not preferred, sets of the size most are best, then
// smaller sets with the most nodes, then larger ones.
func (r Rules) better(a, b numa.Hint, most int) bool {
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

// place ranks a number of nodes: equal to the wanted one, below, or above.
func place(count, wanted int) int {
	switch {
	case count == wanted:
		return 0
	case count < wanted:
		return 1
	}
	return 2
}

// narrower reports whether a is better than b by its size and, if Distance is set, by the distance of its nodes.
func (r Rules) narrower(a, b numa.Nodes) bool {
	if r.Distance == nil || a.Count() != b.Count() {
		return a.NarrowerThan(b)
	}
	if da, db := r.distance(a), r.distance(b); da != db {
		return da < db
	}
	return a < b
}

// distance returns the average distance between the nodes of a set, including each to itself.
func (r Rules) distance(n numa.Nodes) float64 {
	ids, sum := n.IDs(), 0
	for _, a := range ids {
		for _, b := range ids {
			sum += r.Distance(a, b)
		}
	}
	return float64(sum) / float64(len(ids)*len(ids))
}
