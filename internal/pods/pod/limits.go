package pod

import v1 "k8s.io/api/core/v1"

// Limits reports whether a limit of the resource holds for the pod as a whole: the pod has
// one, or each of its containers does, init containers included.
func Limits(p *v1.Pod, name v1.ResourceName) bool {
	if r := p.Spec.Resources; r != nil {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return true
		}
	}
	for kind, c := range Containers(p) {
		if q := c.Resources.Limits[name]; kind != Ephemeral && q.IsZero() {
			return false
		}
	}
	return true
}
