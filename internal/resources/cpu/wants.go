package cpu

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// wants is how many CPUs the container is to have for itself.
func (p *Pool) wants(of *v1.Pod, c *v1.Container) int {
	if p.cfg.Policy != PolicyStatic || pod.QOS(of) != v1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(of) {
		return 0
	}
	q := c.Resources.Requests[v1.ResourceCPU]
	if q.Value()*1000 != q.MilliValue() {
		return 0
	}
	return int(q.Value())
}

// wantsTogether is how many CPUs the containers of the pod are to have for themselves
// at the most demanding moment of its life: each init container runs beside the
// sidecars before it, all others together.
func (p *Pool) wantsTogether(of *v1.Pod) int {
	most, lasting := 0, 0
	for kind, c := range pod.Containers(of) {
		switch n := p.wants(of, c); kind {
		case pod.Init:
			most = max(most, lasting+n)
		case pod.Ephemeral:
		default:
			lasting += n
		}
	}
	return max(most, lasting)
}
