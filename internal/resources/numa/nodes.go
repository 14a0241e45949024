package numa

import (
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxNodes bounds the IDs of NUMA nodes: they are below it.
const MaxNodes = 64

// Nodes is a set of NUMA nodes. The empty set means any node.
type Nodes uint64

// NodesOf returns the set of the nodes with these IDs. Invalid IDs are left out, such as the -1 with which the kernel
// reports an unknown node.
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

// Count returns the number of nodes in the set.
func (n Nodes) Count() int { return bits.OnesCount64(uint64(n)) }

// IDs returns the IDs of the nodes in ascending order.
func (n Nodes) IDs() []int {
	out := make([]int, 0, n.Count())
	for ; n != 0; n &= n - 1 {
		out = append(out, bits.TrailingZeros64(uint64(n)))
	}
	return out
}

// NarrowerThan orders sets by size, then by IDs.
func (n Nodes) NarrowerThan(o Nodes) bool {
	if a, b := n.Count(), o.Count(); a != b {
		return a < b
	}
	return n < o
}

// Within reports whether all of n is in o.
func (n Nodes) Within(o Nodes) bool { return n&^o == 0 }

// Subsets yields all non-empty subsets of n.
func (n Nodes) Subsets() iter.Seq[Nodes] {
	return func(yield func(Nodes) bool) {
		// Count up through the bits of n only; the carry skips all others.
		for s := (Nodes(0) - n) & n; s != 0; s = (s - n) & n {
			if !yield(s) {
				return
			}
		}
	}
}

// String returns the list of the nodes in the format of the kernel's cpuset files.
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
