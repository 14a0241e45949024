package topology

import (
	"math/rand/v2"
	"testing"

	"keelson/internal/resources/numa"
	"keelson/test/kit/parity"
)

func on(preferred bool, ids ...int) numa.Hint {
	return numa.Hint{Nodes: numa.NodesOf(ids...), Preferred: preferred}
}

func TestMerge(t *testing.T) {
	parity.Proves(t, "RES-39", "RES-42")
	type answers map[Policy]struct {
		best  numa.Hint
		admit bool
	}
	two := numa.NodesOf(0, 1)
	for _, tc := range []struct {
		name  string
		nodes numa.Nodes
		all   []numa.Hints
		want  answers
	}{
		{"no provider has a preference", two, []numa.Hints{nil, {}}, answers{
			None:           {numa.Hint{}, true},
			BestEffort:     {on(true, 0, 1), true},
			Restricted:     {on(true, 0, 1), true},
			SingleNUMANode: {numa.Hint{Preferred: true}, true},
		}},
		{"one resource, any node", two, []numa.Hints{{"cpu": {on(true, 0), on(true, 1), on(false, 0, 1)}}}, answers{
			None:           {numa.Hint{}, true},
			BestEffort:     {on(true, 0), true},
			Restricted:     {on(true, 0), true},
			SingleNUMANode: {on(true, 0), true},
		}},
		{"two resources, one common node", two,
			[]numa.Hints{{"cpu": {on(true, 0), on(true, 1)}}, {"gpu": {on(true, 1)}}}, answers{
				BestEffort:     {on(true, 1), true},
				Restricted:     {on(true, 1), true},
				SingleNUMANode: {on(true, 1), true},
			}},
		{"two resources, no common node", two, []numa.Hints{{"cpu": {on(true, 0)}}, {"gpu": {on(true, 1)}}}, answers{
			BestEffort:     {on(false, 0, 1), true},
			Restricted:     {on(false, 0, 1), false},
			SingleNUMANode: {numa.Hint{}, false},
		}},
		{"a resource spans both nodes", two, []numa.Hints{{"cpu": {on(true, 0, 1)}}}, answers{
			BestEffort:     {on(true, 0, 1), true},
			Restricted:     {on(true, 0, 1), true},
			SingleNUMANode: {numa.Hint{}, false},
		}},
		{"a resource is spread without preference", two, []numa.Hints{{"cpu": {on(false, 0, 1)}}}, answers{
			BestEffort:     {on(false, 0, 1), true},
			Restricted:     {on(false, 0, 1), false},
			SingleNUMANode: {numa.Hint{}, false},
		}},
		{"an unavailable resource", two, []numa.Hints{{"cpu": {}}, {"gpu": {on(true, 0)}}}, answers{
			BestEffort:     {on(false, 0), true},
			Restricted:     {on(false, 0), false},
			SingleNUMANode: {numa.Hint{}, false},
		}},
		{"the narrower hint is used", two,
			[]numa.Hints{{"cpu": {on(true, 0, 1)}}, {"gpu": {on(true, 1)}}}, answers{
				BestEffort:     {on(false, 1), true},
				Restricted:     {on(false, 1), false},
				SingleNUMANode: {numa.Hint{}, false},
			}},
		{"a resource without affinity", two, []numa.Hints{{"nic": {{Preferred: true}}}, {"cpu": {on(true, 1)}}}, answers{
			BestEffort:     {on(true, 1), true},
			Restricted:     {on(true, 1), true},
			SingleNUMANode: {on(true, 1), true},
		}},
		{"not preferred: as many nodes as the widest hint", numa.NodesOf(0, 1, 2, 3), []numa.Hints{
			{
				"cpu": {on(true, 0, 1), on(true, 2, 3), on(false, 0, 1, 2, 3)},
			}, {"gpu": {on(false, 0, 1, 2, 3), on(false, 1, 2, 3)}}}, answers{
			BestEffort: {on(false, 1, 2, 3), true}}},
		{"a machine of one node", numa.NodesOf(0), []numa.Hints{{"cpu": {on(true, 0)}}}, answers{
			BestEffort:     {on(true, 0), true},
			Restricted:     {on(true, 0), true},
			SingleNUMANode: {numa.Hint{Preferred: true}, true},
		}},
	} {
		for policy, want := range tc.want {
			t.Run(tc.name+", "+string(policy), func(t *testing.T) {
				best, admit := Rules{Policy: policy, Nodes: tc.nodes}.Merge(tc.all)
				if best != want.best || admit != want.admit {
					t.Errorf("%+v admitted %t, want %+v %t", best, admit, want.best, want.admit)
				}
			})
		}
	}
}

func TestMergePrefersClosestNodes(t *testing.T) {
	// Nodes 0 and 3 are close to each other, and nodes 1 and 2.
	far := [][]int{{10, 30, 30, 20}, {30, 10, 20, 30}, {30, 20, 10, 30}, {20, 30, 30, 10}}
	pairs := numa.Hints{
		"cpu": {on(true, 0, 1), on(true, 0, 2), on(true, 0, 3), on(true, 1, 2), on(true, 1, 3), on(true, 2, 3)},
	}
	r := Rules{Policy: BestEffort, Nodes: numa.NodesOf(0, 1, 2, 3)}
	if best, _ := r.Merge([]numa.Hints{pairs}); best != on(true, 0, 1) {
		t.Errorf("whatever the distance: %v", best)
	}
	r.Distance = func(a, b int) int { return far[a][b] }
	if best, _ := r.Merge([]numa.Hints{pairs}); best != on(true, 1, 2) {
		t.Errorf("by distance: %v", best)
	}
	pairs["cpu"] = append(pairs["cpu"], on(true, 3))
	if best, _ := r.Merge([]numa.Hints{pairs}); best != on(true, 3) {
		t.Errorf("fewer nodes come before closer ones: %v", best)
	}
}

// TestMergeAgreesWithSimpleVersion compares Merge with a version that tries all combinations of hints.
func TestMergeAgreesWithSimpleVersion(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n := 1 + rnd.IntN(4)
		r := Rules{Policy: []Policy{BestEffort, Restricted, SingleNUMANode}[rnd.IntN(3)], Nodes: 1<<n - 1}
		var all []numa.Hints
		for i := range 1 + rnd.IntN(3) {
			list := []numa.Hint{}
			for range rnd.IntN(5) {
				list = append(list, numa.Hint{Nodes: numa.Nodes(rnd.Uint64()) & r.Nodes, Preferred: rnd.IntN(2) == 0})
			}
			all = append(all, numa.Hints{string(rune('a' + i)): list})
		}
		best, admit := r.Merge(all)
		slow, slowAdmit := r.slowly(all)
		if best != slow || admit != slowAdmit {
			t.Fatalf("%s of %v: %+v %t, the slow way %+v %t\n%+v", r.Policy, r.Nodes, best, admit, slow, slowAdmit, all)
		}
	}
}

func (r Rules) slowly(all []numa.Hints) (best numa.Hint, admit bool) {
	lists := r.lists(all)
	most, found := widestMinimum(lists), false
	best = numa.Hint{Nodes: r.Nodes}
	var walk func(i int, taken []numa.Hint)
	walk = func(i int, taken []numa.Hint) {
		if i < len(lists) {
			for _, h := range lists[i] {
				walk(i+1, append(taken[:i:i], h))
			}
			return
		}
		sum, named := numa.Hint{Nodes: r.Nodes, Preferred: true}, numa.Nodes(0)
		for _, h := range taken {
			sum.Preferred = sum.Preferred && h.Preferred
			if h.Nodes == 0 {
				continue
			}
			if named == 0 {
				named = h.Nodes
			}
			sum.Preferred = sum.Preferred && h.Nodes == named
			sum.Nodes &= h.Nodes
		}
		if sum.Nodes != 0 && (!found || r.better(sum, best, most)) {
			best, found = sum, true
		}
	}
	walk(0, nil)
	if r.Policy == SingleNUMANode && best.Nodes == r.Nodes {
		best.Nodes = 0
	}
	return best, r.Policy == BestEffort || best.Preferred
}
