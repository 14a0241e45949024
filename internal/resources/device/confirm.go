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

var errReleased = errors.New("the pod has given its devices back")

// Confirmed implements resource.Confirmer.
func (p *Pool) Confirmed(po *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, c := range pod.Containers(po) {
		if kind != pod.Ephemeral && len(p.openLocked(po, c)) > 0 {
			return false
		}
	}
	return true
}

// Confirm implements resource.Confirmer: plugins are asked for what the pod's
// containers were given.
func (p *Pool) Confirm(ctx context.Context, po *v1.Pod) error {
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

// confirm asks plugins for what one container was given and they were not asked for
// yet. Devices that an agent before this one did not write down are chosen here.
func (p *Pool) confirm(ctx context.Context, po *v1.Pod, c *v1.Container) error {
	p.mu.Lock()
	open := p.openLocked(po, c)
	if len(open) == 0 {
		p.mu.Unlock()
		return nil
	}
	if ctx.Err() != nil { // the pod goes, and what it had may be given back already
		p.mu.Unlock()
		return ctx.Err()
	}
	cl := p.claimLocked(po.UID)
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case cl.turn <- struct{}{}:
		defer func() { <-cl.turn }()
	}
	for _, name := range open {
		if err := p.ask(ctx, po, c, cl, name); err != nil {
			return err
		}
	}
	return p.save()
}

// openLocked are the resources that the container asks for and of which no plugin
// has answered yet.
func (p *Pool) openLocked(po *v1.Pod, c *v1.Container) []string {
	asks := p.asksLocked(c)
	maps.DeleteFunc(asks, func(name string, _ int) bool {
		h := p.holdingLocked(po.UID, c.Name, name)
		return h != nil && h.answer != nil
	})
	return slices.Sorted(maps.Keys(asks))
}

// ask has a plugin allocate what a container was given of its resource.
func (p *Pool) ask(ctx context.Context, po *v1.Pod, c *v1.Container, cl *claim, name string) error {
	p.mu.Lock()
	if p.claims[po.UID] != cl {
		p.mu.Unlock()
		return errReleased
	}
	if h := p.holdingLocked(po.UID, c.Name, name); h != nil && h.answer != nil {
		p.mu.Unlock()
		return nil // meanwhile
	}
	if err := p.assignLocked(po, c, name, p.asksLocked(c)[name], 0); err != nil {
		p.mu.Unlock()
		return err
	}
	h, pl := p.holdingLocked(po.UID, c.Name, name), p.resources[name].plugin
	in := p.choiceLocked(po, c, name, h)
	p.mu.Unlock()

	if pl.prefers {
		if err := p.prefer(ctx, po, c, pl, h, in); err != nil {
			return err
		}
	}
	began := time.Now()
	resp, err := pl.client.Allocate(ctx, &deviceapi.AllocateRequest{ContainerRequests: []*deviceapi.ContainerAllocateRequest{{DevicesIds: h.ids}}})
	p.metrics.allocations.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		return err
	}
	if len(resp.ContainerResponses) == 0 {
		return fmt.Errorf("no containers return in allocation response %v", resp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holdingLocked(po.UID, c.Name, name) != h {
		return errReleased
	}
	h.answer = resp.ContainerResponses[0]
	p.unsaved = true
	return nil
}

// choiceLocked is what the container could have in place of what it holds.
func (p *Pool) choiceLocked(po *v1.Pod, c *v1.Container, name string, h *holding) choice {
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

// prefer lets the plugin choose among what is as good for the node. What another pod
// was given meanwhile is not to be had; what an init container of the pod has by now
// is taken first.
func (p *Pool) prefer(ctx context.Context, po *v1.Pod, c *v1.Container, pl *plugin, h *holding, in choice) error {
	available, must := candidates(in)
	var liked []string
	if len(available) > in.count {
		resp, err := pl.client.GetPreferredAllocation(ctx, &deviceapi.PreferredAllocationRequest{ContainerRequests: []*deviceapi.ContainerPreferredAllocationRequest{
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
	if p.holdingLocked(po.UID, c.Name, pl.resource) != h || p.resources[pl.resource] == nil {
		return errReleased
	}
	in = p.choiceLocked(po, c, pl.resource, h)
	in.liked = liked
	if ids := choose(in); len(ids) == len(h.ids) {
		h.ids = ids
		p.holdLocked(po.UID, c.Name, pl.resource, h)
	}
	return nil
}
