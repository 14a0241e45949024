package device

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// knownLocked reports whether a resource is one of devices. One that no plugin offers
// and nobody has is somebody else's.
func (p *Pool) knownLocked(name string) bool {
	if p.resources[name] != nil {
		return true
	}
	for _, cl := range p.claims {
		for _, held := range cl.held {
			if held[name] != nil {
				return true
			}
		}
	}
	return false
}

// asksLocked is how many devices of which resources a container asks for.
func (p *Pool) asksLocked(c *v1.Container) map[string]int {
	var out map[string]int
	for name, q := range c.Resources.Limits {
		if q.Value() > 0 && strings.Contains(string(name), "/") && p.knownLocked(string(name)) {
			if out == nil {
				out = map[string]int{}
			}
			out[string(name)] = int(q.Value())
		}
	}
	return out
}

// Assign implements resource.Provider: it chooses devices. Plugins are asked later,
// by Confirm.
func (p *Pool) Assign(po *v1.Pod, c *v1.Container, at topology.Hint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	asks := p.asksLocked(c)
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		if err := p.assignLocked(po, c, name, asks[name], at.Nodes); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) assignLocked(po *v1.Pod, c *v1.Container, name string, count int, near topology.Nodes) error {
	r := p.resources[name]
	if r == nil {
		return fmt.Errorf("cannot allocate unregistered device %s", name)
	}
	h := p.holdingLocked(po.UID, c.Name, name)
	if h != nil && len(h.ids) != count {
		return fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", po.UID, c.Name, name, len(h.ids), count)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(r.devices)), r.healthy) {
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	if h != nil {
		if !all(h.ids, r.healthy) {
			return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
		}
		return nil
	}
	in := choice{free: p.freeLocked(name), reuse: p.reusableLocked(po, c, name), near: near, count: count}
	ids := choose(in)
	if len(ids) < count {
		return fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, count, len(in.free)+len(in.reuse))
	}
	p.holdLocked(po.UID, c.Name, name, &holding{ids: ids, near: near})
	return nil
}

func all(ids []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !ok(id) })
}

// freeLocked are the devices of a resource that are well and that nobody has.
func (p *Pool) freeLocked(name string) map[string]Device {
	r, out := p.resources[name], map[string]Device{}
	for id, d := range r.devices {
		if r.healthy(id) {
			out[id] = d
		}
	}
	for _, cl := range p.claims {
		for _, held := range cl.held {
			if h := held[name]; h != nil {
				for _, id := range h.ids {
					delete(out, id)
				}
			}
		}
	}
	return out
}

// reusableLocked are the devices, as far as they are well, that a container can have
// of init containers of its pod, which have ended when it starts. What a sidecar or
// another regular container has of them is not among these.
func (p *Pool) reusableLocked(po *v1.Pod, c *v1.Container, name string) map[string]Device {
	out, r := map[string]Device{}, p.resources[name]
	if r == nil {
		return nil
	}
	for kind, other := range pod.Containers(po) {
		if other.Name == c.Name {
			break
		}
		h := p.holdingLocked(po.UID, other.Name, name)
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

// holdingLocked is what a container has of a resource; nil: nothing.
func (p *Pool) holdingLocked(uid types.UID, container, name string) *holding {
	if cl := p.claims[uid]; cl != nil {
		return cl.held[container][name]
	}
	return nil
}

// claimLocked is what the pod has been given, which may be nothing yet.
func (p *Pool) claimLocked(uid types.UID) *claim {
	cl := p.claims[uid]
	if cl == nil {
		cl = &claim{turn: make(chan struct{}, 1), held: map[string]map[string]*holding{}}
		p.claims[uid] = cl
	}
	return cl
}

// holdLocked gives a container devices.
func (p *Pool) holdLocked(uid types.UID, container, name string, h *holding) {
	h.nodes = map[string][]int{}
	for _, id := range h.ids {
		if r := p.resources[name]; r != nil && len(r.devices[id].Nodes) > 0 {
			h.nodes[id] = r.devices[id].Nodes
		}
	}
	cl := p.claimLocked(uid)
	if cl.held[container] == nil {
		cl.held[container] = map[string]*holding{}
	}
	cl.held[container][name] = h
}

// Release implements resource.Provider.
func (p *Pool) Release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claims[uid] == nil {
		return
	}
	delete(p.claims, uid)
	p.unsaved = true
	p.poke()
}

// Holders implements resource.Provider.
func (p *Pool) Holders() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.claims))
}
