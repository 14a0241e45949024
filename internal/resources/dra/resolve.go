package dra

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// need is a claim that a pod wants prepared.
type need struct {
	name string // of the object
	own  bool   // it was made for this pod
}

// Uses reports whether a pod uses claims.
func Uses(p *v1.Pod) bool {
	return len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil
}

// needs are the claims that a pod uses, each once. One that is to be made for the pod
// and is not there yet is a failure: it will be.
func needs(p *v1.Pod) ([]need, error) {
	var out []need
	add := func(n need) {
		if !slices.ContainsFunc(out, func(o need) bool { return o.name == n.name }) {
			out = append(out, n)
		}
	}
	for i := range p.Spec.ResourceClaims {
		name, own, err := nameOf(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != "" {
			add(need{name, own})
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		add(need{s.ResourceClaimName, true})
	}
	return out, nil
}

// nameOf is the name of the object behind what a pod calls a claim; empty if the pod
// is to do without.
func nameOf(p *v1.Pod, c *v1.PodResourceClaim) (name string, own bool, err error) {
	switch {
	case c.ResourceClaimName != nil:
		return *c.ResourceClaimName, false, nil
	case c.ResourceClaimTemplateName == nil:
		return "", false, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`, p.Namespace, p.Name, c.Name)
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			if s.ResourceClaimName == nil {
				return "", true, nil
			}
			return *s.ResourceClaimName, true, nil
		}
	}
	return "", false, fmt.Errorf(`pod "%s/%s": ResourceClaim not created yet`, p.Namespace, p.Name)
}

// mayUse says why a pod may not use a claim.
func mayUse(p *v1.Pod, n need, c *Object) error {
	switch {
	case n.own && !metav1.IsControlledBy(c, p):
		return fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", c.Namespace, c.Name, p.Namespace, p.Name)
	case !slices.Contains(c.ReservedFor, p.UID):
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", p.Name, p.UID, c.Name, c.UID)
	case !c.Allocated:
		return fmt.Errorf("ResourceClaim %s: not allocated", c.Name)
	}
	return nil
}

// driversOf are the drivers that a claim was allocated devices of, in order.
func driversOf(c *Object) []string {
	return slices.Compact(slices.Sorted(slices.Values(c.Drivers)))
}

// wish is what a container wants of a claim.
type wish struct {
	claim   string // the name of the object
	request string // empty: all of it
}

// wishes are what a container wants of its pod's claims.
func wishes(p *v1.Pod, c *v1.Container) ([]wish, error) {
	var out []wish
	for _, r := range c.Resources.Claims {
		i := slices.IndexFunc(p.Spec.ResourceClaims, func(pc v1.PodResourceClaim) bool { return pc.Name == r.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s uses claim %s, which its pod does not name", c.Name, r.Name)
		}
		name, _, err := nameOf(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != "" {
			out = append(out, wish{name, r.Request})
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			if m.ContainerName == c.Name {
				out = append(out, wish{s.ResourceClaimName, m.RequestName})
			}
		}
	}
	return out, nil
}

// serves reports whether a device that a driver gave for requests is for one of them.
// A request with alternatives is known by its own name, whichever of them was chosen.
func serves(requests []string, request string) bool {
	return request == "" || len(requests) == 0 || slices.ContainsFunc(requests, func(r string) bool {
		base, _, _ := strings.Cut(r, "/")
		return base == request || r == request
	})
}
