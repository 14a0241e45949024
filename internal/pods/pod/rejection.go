package pod

// Rejection is why a pod is not admitted to this node. The pod fails with this reason and
// message. Preparation of a pod may return it as a permanent error, wrapped or not.
type Rejection struct {
	Reason  string // for machines, CamelCase
	Message string // for people
	// Late, if set, means that the pod is not rejected: it waits for device plugins, and its
	// admission is decided again later.
	Late Late
}

func (r *Rejection) Error() string { return r.Message }
