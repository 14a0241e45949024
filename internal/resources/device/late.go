package device

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// lateness is which device plugins have yet to register with this agent that were registered with the one before it,
// and how long pods wait for them.
type lateness struct {
	resources map[string]bool // guarded by Pool.mu, as over is
	until     time.Time
	over      bool // only pods that were admitted by an earlier agent go on waiting
}

// newLateness begins the wait for the plugins of these resources.
func newLateness(resources map[string]*resource, now time.Time, wait time.Duration) lateness {
	l := lateness{resources: map[string]bool{}, until: now.Add(wait), over: wait <= 0}
	for name := range resources {
		l.resources[name] = true
	}
	return l
}

// Late returns for which device plugins the pod has to wait. With admitted an earlier
// agent has admitted the pod: then the wait has no end time.
func (p *Pool) Late(po *v1.Pod, admitted bool) pod.Late {
	return p.late(po, admitted, func(*v1.Container, string) bool { return true })
}

// LateForRunning implements resource.Awaiter: it is Late, but for what plugins have answered for the pod already.
func (p *Pool) LateForRunning(po *v1.Pod) pod.Late {
	return p.late(po, true, func(c *v1.Container, name string) bool {
		h := p.holdingLocked(po.UID, c.Name, name)
		return h == nil || h.answer == nil
	})
}

func (p *Pool) late(po *v1.Pod, admitted bool, asks func(*v1.Container, string) bool) (l pod.Late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lateness.resources) == 0 || p.lateness.over && !admitted {
		return l
	}
	names := map[string]bool{}
	for kind, c := range pod.Containers(po) {
		if kind == pod.Ephemeral {
			continue
		}
		waits := false
		for name, q := range c.Resources.Limits {
			if p.lateness.resources[string(name)] && q.Value() > 0 && !claimed(po, c, name) && asks(c, string(name)) {
				names[string(name)], waits = true, true
			}
		}
		if waits {
			l.Containers = append(l.Containers, c.Name)
		}
	}
	if l.Resources = slices.Sorted(maps.Keys(names)); len(names) > 0 && !admitted {
		l.Until = p.lateness.until
	}
	return l
}

// cameLocked notes that the plugin of a resource has listed its devices. It reports whether pods may wait for it.
func (l *lateness) cameLocked(name string) bool {
	late := l.resources[name]
	delete(l.resources, name)
	return late
}

// expireLocked ends the wait when its time is over. It returns when that is, and reports whether it has just ended.
func (l *lateness) expireLocked(now time.Time) (next time.Time, ended bool) {
	if l.over || len(l.resources) == 0 {
		return time.Time{}, false
	}
	if now.Before(l.until) {
		return l.until, false
	}
	l.over = true
	return time.Time{}, true
}

// claimed reports whether a container has a resource by a claim: then no device plugin gives it.
func claimed(po *v1.Pod, c *v1.Container, name v1.ResourceName) bool {
	s := po.Status.ExtendedResourceClaimStatus
	return s != nil && slices.ContainsFunc(s.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == c.Name && m.ResourceName == string(name)
	})
}
