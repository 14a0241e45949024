package cpu

import (
	"math"

	"k8s.io/utils/cpuset"
)

// spread takes n of the free CPUs in groups, evenly from as few NUMA nodes as possible. Among several sets of nodes it
// prefers the one that leaves the free CPUs distributed most evenly. It reports whether there is such a set.
func (l *layout) spread(free cpuset.CPUSet, n, group int, o Options) (got cpuset.CPUSet, ok bool) {
	if n%group != 0 {
		return got, false
	}
	s := distribution{n: n, group: group, left: map[int]int{}}
	byNode := map[int]cpuset.CPUSet{}
	for _, p := range l.nodes(free.List()) {
		s.order = append(s.order, p.id)
		s.left[p.id] = len(p.cpus)
		byNode[p.id] = cpuset.New(p.cpus...)
	}
	least, most := l.nodesNeeded(n, group, len(s.order))
	for k := least; k <= most; k++ {
		best, found := s.best(k)
		if !found {
			continue
		}
		within := Options{AcrossCores: o.AcrossCores}
		each := n / k / group * group
		for id, count := range best.take {
			// The remainder of an uneven distribution is taken group by group.
			for part := each; count > 0; count, part = count-part, group {
				mine := l.pack(byNode[id], part, within)
				byNode[id], got = byNode[id].Difference(mine), got.Union(mine)
			}
		}
		return got, true
	}
	return got, false
}

// nodesNeeded returns the minimum number of nodes of a request on an empty machine, and the maximum it can be spread
// over.
func (l *layout) nodesNeeded(n, group, available int) (least, most int) {
	up := func(a, b int) int { return (a + b - 1) / b }
	perNode := up(up(len(l.cpus), group), len(l.ids(node)))
	groups := up(n, group)
	return up(groups, perNode), min(groups, available)
}

// distribution is a request and the free CPUs of each node.
type distribution struct {
	n, group int
	order    []int // the node IDs; nodes that come first are used up first
	left     map[int]int
}

// shares is the number of CPUs that each node provides, and the imbalance that remains.
type shares struct {
	take   map[int]int
	uneven float64
}

// best returns the k nodes that leave the smallest imbalance.
func (s *distribution) best(k int) (best shares, found bool) {
	best.uneven = math.MaxFloat64
	combinations(s.order, k, func(nodes []int) bool {
		if now, can := s.from(nodes); can && now.uneven < best.uneven {
			best, found = now, true
		}
		return best.uneven > 0
	})
	return best, found
}

// from takes the request from the given nodes: the same number from each, and the remaining groups from those nodes
// that leave the smallest imbalance. Among equals it prefers more nodes.
func (s *distribution) from(nodes []int) (best shares, can bool) {
	each := s.n / len(nodes) / s.group * s.group
	groups, total := 0, 0
	for _, id := range nodes {
		if s.left[id] < each {
			return best, false
		}
		groups += s.left[id] / s.group
		total += s.left[id]
	}
	if total < s.n || groups*s.group < s.n {
		return best, false
	}
	take := map[int]int{}
	var more []int
	for _, id := range nodes {
		take[id] = each
		if s.left[id]-each >= s.group {
			more = append(more, id)
		}
	}
	over := s.n - each*len(nodes)
	if over == 0 {
		return shares{take, s.unevenness(take)}, true
	}
	best.uneven = math.MaxFloat64
	for k := len(more); k > 0; k-- {
		combinations(more, k, func(from []int) bool {
			with, fits := s.deal(take, from, over)
			if fits {
				if uneven := s.unevenness(with); uneven < best.uneven {
					best, can = shares{with, uneven}, true
				}
			}
			return true
		})
	}
	return best, can
}

// deal adds the remaining CPUs round-robin, one group at a time.
func (s *distribution) deal(take map[int]int, from []int, over int) (with map[int]int, fits bool) {
	with = make(map[int]int, len(take))
	for id, n := range take {
		with[id] = n
	}
	for over > 0 {
		dealt := false
		for _, id := range from {
			if over > 0 && s.left[id]-with[id] >= s.group {
				with[id] += s.group
				over -= s.group
				dealt = true
			}
		}
		if !dealt {
			return nil, false
		}
	}
	return with, true
}

// unevenness returns the standard deviation of the free CPUs per node, to three decimals.
func (s *distribution) unevenness(take map[int]int) float64 {
	sum, squares, n := 0., 0., float64(len(s.order))
	for _, id := range s.order {
		sum += float64(s.left[id] - take[id])
	}
	for _, id := range s.order {
		d := float64(s.left[id]-take[id]) - sum/n
		squares += d * d
	}
	return math.Round(math.Sqrt(squares/n)*1000) / 1000
}

// combinations calls f with every selection of k elements of the list, in its order, until f returns false.
func combinations(of []int, k int, f func([]int) bool) bool {
	var walk func(from int, chosen []int) bool
	walk = func(from int, chosen []int) bool {
		if len(chosen) == k {
			return f(chosen)
		}
		for i := from; i <= len(of)-(k-len(chosen)); i++ {
			if !walk(i+1, append(chosen[:len(chosen):len(chosen)], of[i])) {
				return false
			}
		}
		return true
	}
	return walk(0, nil)
}
