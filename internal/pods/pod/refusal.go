package pod

// Refusal is an error that does not go away: the pod cannot run on this node, and
// ends as Failed with this reason, like one that was refused on its arrival. A part
// that prepares something for a pod returns it, wrapped or not.
type Refusal struct {
	Reason  string // for machines, CamelCase
	Message string // for people
}

func (r *Refusal) Error() string { return r.Message }
