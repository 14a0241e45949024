package device

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// isDeviceResourceLocked reports whether a resource is allocated by device plugins. A resource without a plugin and
// without allocations belongs to something else.
func (p *Manager) isDeviceResourceLocked(name string) bool {
	if p.resources[name] != nil {
		return true
	}
	for _, cl := range p.allocated {
		for _, held := range cl.byContainer {
			if held[name] != nil {
				return true
			}
		}
	}
	return false
}

// requestedLocked returns the number of devices that a container requests, by resource.
func (p *Manager) requestedLocked(c *v1.Container) map[string]int {
	var out map[string]int
	for name, q := range c.Resources.Limits {
		if q.Value() > 0 && strings.Contains(string(name), "/") && p.isDeviceResourceLocked(string(name)) {
			if out == nil {
				out = map[string]int{}
			}
			out[string(name)] = int(q.Value())
		}
	}
	return out
}

// Allocate implements topology.Provider: it selects devices. The plugins are called later, by Confirm.
func (p *Manager) Allocate(po *v1.Pod, c *v1.Container, at numa.Hint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	asks := p.requestedLocked(c)
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		if err := p.allocateLocked(po, c, name, asks[name], at.Nodes); err != nil {
			return err
		}
	}
	return nil
}

func (p *Manager) allocateLocked(po *v1.Pod, c *v1.Container, name string, count int, near numa.Nodes) error {
	r := p.resources[name]
	if r == nil {
		return fmt.Errorf("cannot allocate unregistered device %s", name)
	}
	h := p.allocationLocked(po.UID, c.Name, name)
	if h != nil && len(h.ids) != count {
		return fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d",
			po.UID, c.Name, name, len(h.ids), count)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(r.devices)), r.healthy) {
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	if h != nil {
		if !all(h.ids, r.healthy) {
			return fmt.Errorf(
				"previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
		}
		return nil
	}
	in := choice{free: p.freeLocked(name), reuse: p.reusableLocked(po, c, name), near: near, count: count}
	ids := choose(in)
	if len(ids) < count {
		return fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			name, count, len(in.free)+len(in.reuse))
	}
	p.setAllocationLocked(po.UID, c.Name, name, &allocation{ids: ids, near: near})
	return nil
}

func all(ids []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !ok(id) })
}

// freeLocked returns the healthy devices of a resource that are not allocated.
func (p *Manager) freeLocked(name string) map[string]Device {
	r, out := p.resources[name], map[string]Device{}
	for id, d := range r.devices {
		if r.healthy(id) {
			out[id] = d
		}
	}
	for _, cl := range p.allocated {
		for _, held := range cl.byContainer {
			if h := held[name]; h != nil {
				for _, id := range h.ids {
					delete(out, id)
				}
			}
		}
	}
	return out
}

// reusableLocked returns the healthy devices that a container can reuse from earlier init containers of its pod, which
// have terminated when it starts. Devices that a sidecar or another regular container has are excluded.
func (p *Manager) reusableLocked(po *v1.Pod, c *v1.Container, name string) map[string]Device {
	out, r := map[string]Device{}, p.resources[name]
	if r == nil {
		return nil
	}
	for kind, other := range pod.Containers(po) {
		if other.Name == c.Name {
			break
		}
		h := p.allocationLocked(po.UID, other.Name, name)
		if h == nil {
			continue
		}
		for _, id := range h.ids {
			if delete(out, id); kind == pod.Init && r.healthy(id) {
				out[id] = r.devices[id]
			}
		}
	}
	return out
}

// allocationLocked returns the devices of a resource that are allocated to a container, or nil.
func (p *Manager) allocationLocked(uid types.UID, container, name string) *allocation {
	if cl := p.allocated[uid]; cl != nil {
		return cl.byContainer[container][name]
	}
	return nil
}

// podDevicesLocked returns the devices of the pod, which may be none yet.
func (p *Manager) podDevicesLocked(uid types.UID) *podDevices {
	cl := p.allocated[uid]
	if cl == nil {
		cl = &podDevices{turn: make(chan struct{}, 1), byContainer: map[string]map[string]*allocation{}}
		p.allocated[uid] = cl
	}
	return cl
}

// setAllocationLocked sets the devices of a resource that are allocated to a container.
func (p *Manager) setAllocationLocked(uid types.UID, container, name string, h *allocation) {
	h.nodes = map[string][]int{}
	for _, id := range h.ids {
		if r := p.resources[name]; r != nil && len(r.devices[id].Nodes) > 0 {
			h.nodes[id] = r.devices[id].Nodes
		}
	}
	cl := p.podDevicesLocked(uid)
	if cl.byContainer[container] == nil {
		cl.byContainer[container] = map[string]*allocation{}
	}
	cl.byContainer[container][name] = h
}

// Release implements topology.Provider.
func (p *Manager) Release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allocated[uid] == nil {
		return
	}
	delete(p.allocated, uid)
	p.unsaved = true
	p.trigger()
}

// Holders implements topology.Provider.
func (p *Manager) Holders() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.allocated))
}
