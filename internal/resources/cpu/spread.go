package cpu

import (
	"math"

	"k8s.io/utils/cpuset"
)

// spread takes n of the free CPUs in groups, evenly from as few NUMA nodes as it can.
// Of several sets of nodes it takes the one that leaves the machine most even. It
// reports whether there is any.
func (l *layout) spread(free cpuset.CPUSet, n, group int, o Options) (got cpuset.CPUSet, ok bool) {
	if n%group != 0 {
		return got, false
	}
	s := spreading{n: n, group: group, left: map[int]int{}}
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
			// What is over is taken group by group, as what it is: an odd lot.
			for part := each; count > 0; count, part = count-part, group {
				mine := l.pack(byNode[id], part, within)
				byNode[id], got = byNode[id].Difference(mine), got.Union(mine)
			}
		}
		return got, true
	}
	return got, false
}

// nodesNeeded is how many nodes a request takes at least, were they all free, and how
// many it could be spread over.
func (l *layout) nodesNeeded(n, group, available int) (least, most int) {
	up := func(a, b int) int { return (a + b - 1) / b }
	perNode := up(up(len(l.cpus), group), len(l.ids(node)))
	groups := up(n, group)
	return up(groups, perNode), min(groups, available)
}

// spreading is a request, and what nodes have left.
type spreading struct {
	n, group int
	order    []int // of the nodes
	left     map[int]int
}

// shares are how many CPUs each node gives, and how uneven that leaves the machine.
type shares struct {
	take   map[int]int
	uneven float64
}

// best finds the k nodes that leave the machine most even.
func (s *spreading) best(k int) (best shares, found bool) {
	best.uneven = math.MaxFloat64
	combinations(s.order, k, func(nodes []int) bool {
		if now, can := s.from(nodes); can && now.uneven < best.uneven {
			best, found = now, true
		}
		return best.uneven > 0
	})
	return best, found
}

// from takes the request from these nodes: the same from each, and the groups that
// are left over from those of them that leave the machine most even, from as many as
// there are if that makes no difference.
func (s *spreading) from(nodes []int) (best shares, can bool) {
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

// deal adds what is over, group by group in turn.
func (s *spreading) deal(take map[int]int, from []int, over int) (with map[int]int, fits bool) {
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

// unevenness is the standard deviation of what all nodes have left, to a thousandth.
func (s *spreading) unevenness(take map[int]int) float64 {
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

// combinations calls f with all choices of k of the list, in its order, until f says
// that it has seen enough.
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
