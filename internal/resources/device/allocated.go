package device

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AllocatedDevice is a device that is allocated or allocatable.
type AllocatedDevice struct {
	Resource, ID string
	Nodes        []int // its NUMA nodes; empty: not known
	Health       v1.ResourceHealthStatus
}

// Devices returns the devices of a container, by resource and ID.
func (p *Manager) Devices(uid types.UID, container string) (out []AllocatedDevice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cl := p.allocated[uid]
	if cl == nil {
		return nil
	}
	held := cl.byContainer[container]
	for _, name := range slices.Sorted(maps.Keys(held)) {
		for _, id := range held[name].ids {
			out = append(out, AllocatedDevice{name, id, held[name].nodes[id], p.resources[name].health(id)})
		}
	}
	return out
}

// ResourceHealth implements topology.HealthReporter.
func (p *Manager) ResourceHealth(uid types.UID, container string) (out []v1.ResourceStatus) {
	if !p.cfg.Health {
		return nil
	}
	for _, h := range p.Devices(uid, container) {
		if n := len(out); n == 0 || out[n-1].Name != v1.ResourceName(h.Resource) {
			out = append(out, v1.ResourceStatus{Name: v1.ResourceName(h.Resource)})
		}
		last := &out[len(out)-1]
		last.Resources = append(last.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(h.ID), Health: h.Health})
	}
	return out
}

// Allocatable returns the healthy devices of the node, by resource and ID.
func (p *Manager) Allocatable() (out []AllocatedDevice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.resources)) {
		r := p.resources[name]
		for _, id := range slices.Sorted(maps.Keys(r.devices)) {
			if r.healthy(id) {
				out = append(out, AllocatedDevice{name, id, r.devices[id].Nodes, v1.ResourceHealthStatusHealthy})
			}
		}
	}
	return out
}

// health returns the health of a device. It is unknown if the plugin does not serve, or does not list the device.
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

// podsToSyncLocked returns the pods with devices of a resource whose health differs from before.
func (p *Manager) podsToSyncLocked(name string, before *resource) (uids []types.UID) {
	now := p.resources[name]
	for uid, cl := range p.allocated {
		for _, held := range cl.byContainer {
			h := held[name]
			if h != nil &&
				slices.ContainsFunc(h.ids, func(id string) bool { return before.health(id) != now.health(id) }) {
				uids = append(uids, uid)
				break
			}
		}
	}
	return uids
}

// syncPods triggers a sync of the pods.
func (p *Manager) syncPods(uids []types.UID) {
	for _, uid := range uids {
		p.cfg.OnPod(uid)
	}
}
