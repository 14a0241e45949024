package dra

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// ContainerClaim is a claim with the devices that a container gets from it.
type ContainerClaim struct {
	ClaimRef
	Devices []ClaimDevice
}

// ClaimDevice is a device with the name of its driver.
type ClaimDevice struct {
	Driver string
	Device
}

// ContainerClaims returns the claims of the container with its devices, in the order of the container's references. It
// fails if one of them is not prepared.
func (s *Manager) ContainerClaims(p *v1.Pod, c *v1.Container) ([]ContainerClaim, error) {
	if !Uses(p) {
		return nil, nil
	}
	list, err := claimRequests(p, c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ContainerClaim
	for _, w := range list {
		held := s.claimLocked(p, w.claim)
		if held == nil || !held.preparedLocked() {
			return nil, pod.ShowAs("unable to get information for ResourceClaim "+w.claim,
				fmt.Errorf("look up ResourceClaim %s/%s: not prepared", p.Namespace, w.claim))
		}
		h := ContainerClaim{ClaimRef: held.ClaimRef}
		for _, name := range slices.Sorted(maps.Keys(held.drivers)) {
			for _, d := range held.drivers[name].devices {
				if serves(d.Requests, w.request) {
					h.Devices = append(h.Devices, ClaimDevice{name, d})
				}
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// Contribution returns the CDI device IDs of the container's claims, without duplicates.
func (s *Manager) Contribution(p *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	list, err := s.ContainerClaims(p, c)
	if err != nil {
		return pod.Contribution{}, fmt.Errorf("get devices of claims: %w", err)
	}
	var out pod.Contribution
	for _, h := range list {
		for _, d := range h.Devices {
			for _, id := range d.CDI {
				if !slices.Contains(out.CDIDevices, id) {
					out.CDIDevices = append(out.CDIDevices, id)
				}
			}
		}
	}
	return out, nil
}

// Health returns the health of the devices of the pod's claims, by container.
func (s *Manager) Health(p *v1.Pod) map[string][]v1.ResourceStatus {
	if s.cfg.Health == nil || len(p.Spec.ResourceClaims) == 0 {
		return nil
	}
	out := map[string][]v1.ResourceStatus{}
	for _, c := range pod.Containers(p) {
		if list := s.healthOf(p, c); len(list) > 0 {
			out[c.Name] = list
		}
	}
	return out
}

// healthOf returns the health of the container's devices from claims of its pod. A device is identified by its first
// CDI ID, or else by its driver, pool and name. Duplicates are left out.
func (s *Manager) healthOf(p *v1.Pod, c *v1.Container) []v1.ResourceStatus {
	var out []v1.ResourceStatus
	for _, r := range c.Resources.Claims {
		one := &v1.Container{Name: c.Name, Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{r}}}
		held, err := s.ContainerClaims(withoutExtended(p), one)
		if err != nil || len(held) == 0 {
			continue // not prepared
		}
		st := v1.ResourceStatus{Name: v1.ResourceName("claim:" + r.Name)}
		if r.Request != "" {
			st.Name += v1.ResourceName("/" + r.Request)
		}
		for _, d := range held[0].Devices {
			h := v1.ResourceHealth{ResourceID: v1.ResourceID(d.Driver + "/" + d.Pool + "/" + d.Name)}
			if len(d.CDI) > 0 {
				h.ResourceID = v1.ResourceID(d.CDI[0])
			}
			if slices.ContainsFunc(st.Resources,
				func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
				continue
			}
			var message string
			if h.Health, message = s.cfg.Health.Of(d.Driver, d.Pool, d.Name); message != "" {
				h.Message = &message
			}
			st.Resources = append(st.Resources, h)
		}
		if len(st.Resources) > 0 {
			out = append(out, st)
		}
	}
	return out
}

// withoutExtended returns the pod without its claim for extended resources.
func withoutExtended(p *v1.Pod) *v1.Pod {
	if p.Status.ExtendedResourceClaimStatus == nil {
		return p
	}
	bare := *p
	bare.Status.ExtendedResourceClaimStatus = nil
	return &bare
}
