package device

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Held is a device of a resource.
type Held struct {
	Resource, ID string
	Nodes        []int // the NUMA nodes it is at; empty: not known
	Health       v1.ResourceHealthStatus
}

// Held are the devices that a container has, by resource and ID.
func (p *Pool) Held(uid types.UID, container string) (out []Held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cl := p.claims[uid]
	if cl == nil {
		return nil
	}
	held := cl.held[container]
	for _, name := range slices.Sorted(maps.Keys(held)) {
		for _, id := range held[name].ids {
			out = append(out, Held{name, id, held[name].nodes[id], p.resources[name].health(id)})
		}
	}
	return out
}

// ResourceHealth implements resource.Teller.
func (p *Pool) ResourceHealth(uid types.UID, container string) (out []v1.ResourceStatus) {
	if !p.cfg.Health {
		return nil
	}
	for _, h := range p.Held(uid, container) {
		if n := len(out); n == 0 || out[n-1].Name != v1.ResourceName(h.Resource) {
			out = append(out, v1.ResourceStatus{Name: v1.ResourceName(h.Resource)})
		}
		last := &out[len(out)-1]
		last.Resources = append(last.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(h.ID), Health: h.Health})
	}
	return out
}

// All are the devices of the node that are well, by resource and ID.
func (p *Pool) All() (out []Held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.resources)) {
		r := p.resources[name]
		for _, id := range slices.Sorted(maps.Keys(r.devices)) {
			if r.healthy(id) {
				out = append(out, Held{name, id, r.devices[id].Nodes, v1.ResourceHealthStatusHealthy})
			}
		}
	}
	return out
}

// health is what can be said of a device: nothing of one whose plugin does not serve,
// or no longer has it.
func (r *resource) health(id string) v1.ResourceHealthStatus {
	switch {
	case r == nil || !r.stopped.IsZero():
		return v1.ResourceHealthStatusUnknown
	case r.devices[id].Healthy:
		return v1.ResourceHealthStatusHealthy
	}
	if _, there := r.devices[id]; !there {
		return v1.ResourceHealthStatusUnknown
	}
	return v1.ResourceHealthStatusUnhealthy
}

// newsLocked are the pods for whose devices there is other to be said than by before.
func (p *Pool) newsLocked(name string, before *resource) (uids []types.UID) {
	now := p.resources[name]
	for uid, cl := range p.claims {
		for _, held := range cl.held {
			h := held[name]
			if h != nil && slices.ContainsFunc(h.ids, func(id string) bool { return before.health(id) != now.health(id) }) {
				uids = append(uids, uid)
				break
			}
		}
	}
	return uids
}

// wake has pods looked at.
func (p *Pool) wake(uids []types.UID) {
	for _, uid := range uids {
		p.cfg.OnPod(uid)
	}
}
