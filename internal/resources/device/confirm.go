package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/pods/pod"
)

var errReleased = errors.New("the devices of the pod were released")

// Confirmed implements topology.Confirmer.
func (p *Manager) Confirmed(po *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, c := range pod.Containers(po) {
		if kind != pod.Ephemeral && len(p.unconfirmedLocked(po, c)) > 0 {
			return false
		}
	}
	return true
}

// Confirm implements topology.Confirmer: it calls Allocate of the plugins for the devices of the pod's containers.
func (p *Manager) Confirm(ctx context.Context, po *v1.Pod) error {
	for kind, c := range pod.Containers(po) {
		if kind == pod.Ephemeral {
			continue
		}
		if err := p.confirm(ctx, po, c); err != nil {
			return err
		}
	}
	return nil
}

// confirm calls the plugins for the container's devices that are not confirmed yet. If an earlier agent admitted the
// pod and did not write its devices to the checkpoint, confirm first selects devices again.
func (p *Manager) confirm(ctx context.Context, po *v1.Pod, c *v1.Container) error {
	p.mu.Lock()
	open := p.unconfirmedLocked(po, c)
	if len(open) == 0 {
		p.mu.Unlock()
		return nil
	}
	if ctx.Err() != nil { // the pod is terminating, and its devices may have been released
		p.mu.Unlock()
		return ctx.Err()
	}
	cl := p.podDevicesLocked(po.UID)
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case cl.turn <- struct{}{}:
		defer func() { <-cl.turn }()
	}
	for _, name := range open {
		if err := p.callAllocate(ctx, po, c, cl, name); err != nil {
			return err
		}
	}
	return p.save()
}

// unconfirmedLocked returns the requested resources for which no plugin has answered yet.
func (p *Manager) unconfirmedLocked(po *v1.Pod, c *v1.Container) []string {
	asks := p.requestedLocked(c)
	maps.DeleteFunc(asks, func(name string, _ int) bool {
		h := p.allocationLocked(po.UID, c.Name, name)
		return h != nil && h.answer != nil
	})
	return slices.Sorted(maps.Keys(asks))
}

// callAllocate calls Allocate of the plugin for a container's devices.
func (p *Manager) callAllocate(ctx context.Context, po *v1.Pod, c *v1.Container, cl *podDevices, name string) error {
	p.mu.Lock()
	if p.allocated[po.UID] != cl {
		p.mu.Unlock()
		return errReleased
	}
	if h := p.allocationLocked(po.UID, c.Name, name); h != nil && h.answer != nil {
		p.mu.Unlock()
		return nil // confirmed by a concurrent call
	}
	if err := p.allocateLocked(po, c, name, p.requestedLocked(c)[name], 0); err != nil {
		p.mu.Unlock()
		return err
	}
	h, pl := p.allocationLocked(po.UID, c.Name, name), p.resources[name].plugin
	in := p.choiceLocked(po, c, name, h)
	p.mu.Unlock()

	if pl.prefers {
		if err := p.applyPreferred(ctx, po, c, pl, h, in); err != nil {
			return err
		}
	}
	began := time.Now()
	resp, err := pl.client.Allocate(ctx, &deviceapi.AllocateRequest{
		ContainerRequests: []*deviceapi.ContainerAllocateRequest{{DevicesIds: h.ids}},
	})
	p.metrics.allocations.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		return err
	}
	if len(resp.ContainerResponses) == 0 {
		return fmt.Errorf("no containers return in allocation response %v", resp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allocationLocked(po.UID, c.Name, name) != h {
		return errReleased
	}
	h.answer = resp.ContainerResponses[0]
	p.unsaved = true
	return nil
}

// choiceLocked returns the devices that the container could have instead of those allocated to it.
func (p *Manager) choiceLocked(po *v1.Pod, c *v1.Container, name string, h *allocation) choice {
	in := choice{free: p.freeLocked(name), reuse: p.reusableLocked(po, c, name), near: h.near, count: len(h.ids)}
	for _, id := range h.ids {
		if d, ok := p.resources[name].devices[id]; ok && p.resources[name].healthy(id) {
			if _, again := in.reuse[id]; !again {
				in.free[id] = d
			}
		}
	}
	return in
}

// applyPreferred calls GetPreferredAllocation and applies the plugin's preference among equally good devices. Devices
// that were allocated to other pods in the meantime are excluded, and those that can be reused within the pod come
// first.
func (p *Manager) applyPreferred(ctx context.Context, po *v1.Pod, c *v1.Container, pl *plugin, h *allocation,
	in choice) error {
	available, must := candidates(in)
	var liked []string
	if len(available) > in.count {
		resp, err := pl.client.GetPreferredAllocation(ctx,
			&deviceapi.PreferredAllocationRequest{ContainerRequests: []*deviceapi.ContainerPreferredAllocationRequest{
				{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(in.count)}}})
		if err != nil {
			return fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
		}
		if len(resp.ContainerResponses) > 0 {
			liked = resp.ContainerResponses[0].DeviceIDs
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allocationLocked(po.UID, c.Name, pl.resource) != h || p.resources[pl.resource] == nil {
		return errReleased
	}
	in = p.choiceLocked(po, c, pl.resource, h)
	in.preferred = liked
	if ids := choose(in); len(ids) == len(h.ids) {
		h.ids = ids
		p.setAllocationLocked(po.UID, c.Name, pl.resource, h)
	}
	return nil
}
