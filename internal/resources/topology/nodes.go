package topology

import (
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxNodes is one more than the highest number that a NUMA node can have here.
const MaxNodes = 64

// Nodes is a set of NUMA nodes. The empty set stands for "anywhere".
type Nodes uint64

// NodesOf is the set of the nodes with these numbers. What is no number of a node, such
// as the -1 with which the kernel says that it does not know, is left out.
func NodesOf(ids ...int) Nodes {
	var n Nodes
	for _, id := range ids {
		if id >= 0 && id < MaxNodes {
			n |= 1 << id
		}
	}
	return n
}

// Has reports whether the node is in the set.
func (n Nodes) Has(id int) bool { return id >= 0 && id < MaxNodes && n&(1<<id) != 0 }

// Count is how many nodes there are in the set.
func (n Nodes) Count() int { return bits.OnesCount64(uint64(n)) }

// IDs are the numbers of the nodes, lowest first.
func (n Nodes) IDs() []int {
	out := make([]int, 0, n.Count())
	for ; n != 0; n &= n - 1 {
		out = append(out, bits.TrailingZeros64(uint64(n)))
	}
	return out
}

// NarrowerThan orders sets: fewer nodes first, then lower numbers.
func (n Nodes) NarrowerThan(o Nodes) bool {
	if a, b := n.Count(), o.Count(); a != b {
		return a < b
	}
	return n < o
}

// Within reports whether all of n is in o.
func (n Nodes) Within(o Nodes) bool { return n&^o == 0 }

// Subsets are all sets of at least one node of n.
func (n Nodes) Subsets() iter.Seq[Nodes] {
	return func(yield func(Nodes) bool) {
		// Counting down through the bits of n alone; the carry skips all others.
		for s := (Nodes(0) - n) & n; s != 0; s = (s - n) & n {
			if !yield(s) {
				return
			}
		}
	}
}

// String is the list of the nodes as the kernel's cpuset files take it.
func (n Nodes) String() string {
	var b strings.Builder
	for i, id := range n.IDs() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(id))
	}
	return b.String()
}
