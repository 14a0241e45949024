package cpu

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// QuotaExempt finds containers with exclusive CPUs. A CPU quota would only throttle them.
type QuotaExempt struct {
	Manager *Manager
	Off     bool // no container is exempt
}

// Container reports whether the container is exempt from its CPU quota.
func (q QuotaExempt) Container(p *v1.Pod, c *v1.Container) bool {
	_, own := q.Manager.CPUs(p.UID, c.Name)
	return own && !q.Off
}

// Pod reports whether any container of the pod is exempt.
func (q QuotaExempt) Pod(p *v1.Pod) bool {
	for kind, c := range pod.Containers(p) {
		if kind != pod.Ephemeral && q.Container(p, c) {
			return true
		}
	}
	return false
}
