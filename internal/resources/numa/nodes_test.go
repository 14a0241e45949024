package numa

import (
	"slices"
	"testing"
)

func TestSubsets(t *testing.T) {
	for _, tc := range []struct {
		all  Nodes
		want []string
	}{
		{0, nil},
		{NodesOf(3), []string{"3"}},
		{NodesOf(0, 2, 63), []string{"0", "0,2", "0,2,63", "0,63", "2", "2,63", "63"}},
	} {
		var got []string
		for s := range tc.all.Subsets() {
			got = append(got, s.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("of %v: %q, want %q", tc.all, got, tc.want)
		}
	}
}

func TestNodesOfIgnoresInvalidIDs(t *testing.T) {
	if n := NodesOf(-1, 2, MaxNodes, 1<<40); n != 1<<2 {
		t.Errorf("%b", n)
	}
}

func TestNarrowerThan(t *testing.T) {
	order := []Nodes{NodesOf(0), NodesOf(1), NodesOf(0, 1), NodesOf(0, 2), NodesOf(1, 2), NodesOf(0, 1, 2)}
	for i, a := range order {
		for j, b := range order {
			if got := a.NarrowerThan(b); got != (i < j) {
				t.Errorf("%v narrower than %v: %t", a, b, got)
			}
		}
	}
}
