package cpu

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// guaranteedCPUs returns the number of exclusive CPUs that the container requests.
func (p *Manager) guaranteedCPUs(of *v1.Pod, c *v1.Container) int {
	if p.cfg.Policy != PolicyStatic || pod.QOS(of) != v1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(of) {
		return 0
	}
	q := c.Resources.Requests[v1.ResourceCPU]
	if q.Value()*1000 != q.MilliValue() {
		return 0
	}
	return int(q.Value())
}

// podGuaranteedCPUs returns the maximum number of exclusive CPUs that the pod uses at any time: each init container
// runs beside the sidecars before it, and all other containers run together.
func (p *Manager) podGuaranteedCPUs(of *v1.Pod) int {
	most, lasting := 0, 0
	for kind, c := range pod.Containers(of) {
		switch n := p.guaranteedCPUs(of, c); kind {
		case pod.Init:
			most = max(most, lasting+n)
		case pod.Ephemeral:
		default:
			lasting += n
		}
	}
	return max(most, lasting)
}
