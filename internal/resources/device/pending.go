package device

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// pendingPlugins tracks the device plugins that were registered with the previous agent and have yet to register with
// this one, and how long pods wait for them.
type pendingPlugins struct {
	resources map[string]bool // guarded by Manager.mu, as is over
	until     time.Time
	over      bool // only pods that an earlier agent has admitted keep waiting
}

// newPendingPlugins starts the wait for the plugins of these resources.
func newPendingPlugins(resources map[string]*resource, now time.Time, wait time.Duration) pendingPlugins {
	l := pendingPlugins{resources: map[string]bool{}, until: now.Add(wait), over: wait <= 0}
	for name := range resources {
		l.resources[name] = true
	}
	return l
}

// Late returns the device plugins that the pod has to wait for. With admitted, an earlier agent has admitted the pod,
// and the wait has no deadline.
func (p *Manager) Late(po *v1.Pod, admitted bool) pod.Late {
	return p.late(po, admitted, func(*v1.Container, string) bool { return true })
}

// LateForRunning implements topology.Awaiter. It excludes resources for which a plugin has answered already.
func (p *Manager) LateForRunning(po *v1.Pod) pod.Late {
	return p.late(po, true, func(c *v1.Container, name string) bool {
		h := p.allocationLocked(po.UID, c.Name, name)
		return h == nil || h.answer == nil
	})
}

func (p *Manager) late(po *v1.Pod, admitted bool, asks func(*v1.Container, string) bool) (l pod.Late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending.resources) == 0 || p.pending.over && !admitted {
		return l
	}
	names := map[string]bool{}
	for kind, c := range pod.Containers(po) {
		if kind == pod.Ephemeral {
			continue
		}
		waits := false
		for name, q := range c.Resources.Limits {
			if p.pending.resources[string(name)] && q.Value() > 0 && !claimed(po, c, name) && asks(c, string(name)) {
				names[string(name)], waits = true, true
			}
		}
		if waits {
			l.Containers = append(l.Containers, c.Name)
		}
	}
	if l.Resources = slices.Sorted(maps.Keys(names)); len(names) > 0 && !admitted {
		l.Until = p.pending.until
	}
	return l
}

// registeredLocked removes the resource of a plugin that has listed its devices. It reports whether pods may wait for
// it.
func (l *pendingPlugins) registeredLocked(name string) bool {
	late := l.resources[name]
	delete(l.resources, name)
	return late
}

// expireLocked ends the wait at its deadline. It returns the deadline, and reports whether the wait has just ended.
func (l *pendingPlugins) expireLocked(now time.Time) (next time.Time, ended bool) {
	if l.over || len(l.resources) == 0 {
		return time.Time{}, false
	}
	if now.Before(l.until) {
		return l.until, false
	}
	l.over = true
	return time.Time{}, true
}

// claimed reports whether a container gets a resource through a ResourceClaim and not from a device plugin.
func claimed(po *v1.Pod, c *v1.Container, name v1.ResourceName) bool {
	s := po.Status.ExtendedResourceClaimStatus
	return s != nil && slices.ContainsFunc(s.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == c.Name && m.ResourceName == string(name)
	})
}
