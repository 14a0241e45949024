package dra

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Held is what a container has of a claim.
type Held struct {
	ClaimRef
	Devices []HeldDevice
}

// HeldDevice is a device and whose it is.
type HeldDevice struct {
	Driver string
	Device
}

// Held tells what the container has of its pod's claims, in the order in which it
// names them. What it should have and is not prepared is a failure.
func (s *Store) Held(p *v1.Pod, c *v1.Container) ([]Held, error) {
	if !Uses(p) {
		return nil, nil
	}
	list, err := wishes(p, c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Held
	for _, w := range list {
		held := s.heldLocked(p, w.claim)
		if held == nil || !held.preparedLocked() {
			return nil, pod.ShowAs("unable to get information for ResourceClaim "+w.claim,
				fmt.Errorf("look up ResourceClaim %s/%s: not prepared", p.Namespace, w.claim))
		}
		h := Held{ClaimRef: held.ClaimRef}
		for _, name := range slices.Sorted(maps.Keys(held.drivers)) {
			for _, d := range held.drivers[name].devices {
				if serves(d.Requests, w.request) {
					h.Devices = append(h.Devices, HeldDevice{name, d})
				}
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// Contribution is what the container is given of its pod's claims: names of devices
// that the runtime knows by what the drivers wrote, each once.
func (s *Store) Contribution(p *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	list, err := s.Held(p, c)
	if err != nil {
		return pod.Contribution{}, fmt.Errorf("give container its claims: %w", err)
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

// Health tells how well the devices of the pod's claims are, by container.
func (s *Store) Health(p *v1.Pod) map[string][]v1.ResourceStatus {
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

// healthOf is the health of the devices that the container has of its pod's claims. A device is named by its first
// CDI ID, or else by its driver, pool and name. Each name is listed once.
func (s *Store) healthOf(p *v1.Pod, c *v1.Container) []v1.ResourceStatus {
	var out []v1.ResourceStatus
	for _, r := range c.Resources.Claims {
		one := &v1.Container{Name: c.Name, Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{r}}}
		held, err := s.Held(withoutExtended(p), one)
		if err != nil || len(held) == 0 {
			continue // not prepared yet, or any more
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
			if slices.ContainsFunc(st.Resources, func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
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

// withoutExtended is the pod as if it claimed by name only.
func withoutExtended(p *v1.Pod) *v1.Pod {
	if p.Status.ExtendedResourceClaimStatus == nil {
		return p
	}
	bare := *p
	bare.Status.ExtendedResourceClaimStatus = nil
	return &bare
}
