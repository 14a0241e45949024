package numa

// Hint is a set of NUMA nodes that can satisfy a request.
type Hint struct {
	Nodes     Nodes // empty: any node
	Preferred bool  // no narrower set can satisfy the request, even on an empty machine
}

// Hints are the topology hints of a provider by resource. A resource with an empty list cannot be allocated on any
// nodes. A resource that is missing has no affinity.
type Hints map[string][]Hint
