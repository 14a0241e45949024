package dra

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podClaim is a ResourceClaim of a pod.
type podClaim struct {
	name string // of the ResourceClaim
	own  bool   // generated for this pod
}

// Uses reports whether a pod uses ResourceClaims.
func Uses(p *v1.Pod) bool {
	return len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil
}

// podClaims returns the ResourceClaims of a pod without duplicates. It fails if one that is generated for the pod does
// not exist yet.
func podClaims(p *v1.Pod) ([]podClaim, error) {
	var out []podClaim
	add := func(n podClaim) {
		if !slices.ContainsFunc(out, func(o podClaim) bool { return o.name == n.name }) {
			out = append(out, n)
		}
	}
	for i := range p.Spec.ResourceClaims {
		name, own, err := claimNameOf(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != "" {
			add(podClaim{name, own})
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		add(podClaim{s.ResourceClaimName, true})
	}
	return out, nil
}

// claimNameOf returns the name of the ResourceClaim that a pod references. It is empty if none is needed.
func claimNameOf(p *v1.Pod, c *v1.PodResourceClaim) (name string, own bool, err error) {
	switch {
	case c.ResourceClaimName != nil:
		return *c.ResourceClaimName, false, nil
	case c.ResourceClaimTemplateName == nil:
		return "", false, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`,
			p.Namespace,
			p.Name, c.Name)
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

// checkUse returns an error if a pod may not use a claim.
func checkUse(p *v1.Pod, n podClaim, c *Object) error {
	switch {
	case n.own && !metav1.IsControlledBy(c, p):
		return fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)",
			c.Namespace, c.Name, p.Namespace, p.Name)
	case !slices.Contains(c.ReservedFor, p.UID):
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", p.Name, p.UID, c.Name, c.UID)
	case !c.Allocated:
		return fmt.Errorf("ResourceClaim %s: not allocated", c.Name)
	}
	return nil
}

// driversOf returns the names of the drivers of a claim's devices, sorted.
func driversOf(c *Object) []string {
	return slices.Compact(slices.Sorted(slices.Values(c.Drivers)))
}

// claimRequest is a container's reference to a claim.
type claimRequest struct {
	claim   string // the name of the ResourceClaim
	request string // empty: all requests
}

// claimRequests returns the references of a container to claims of its pod.
func claimRequests(p *v1.Pod, c *v1.Container) ([]claimRequest, error) {
	var out []claimRequest
	for _, r := range c.Resources.Claims {
		i := slices.IndexFunc(p.Spec.ResourceClaims, func(pc v1.PodResourceClaim) bool { return pc.Name == r.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s uses claim %s, which its pod does not name", c.Name, r.Name)
		}
		name, _, err := claimNameOf(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != "" {
			out = append(out, claimRequest{name, r.Request})
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			if m.ContainerName == c.Name {
				out = append(out, claimRequest{s.ResourceClaimName, m.RequestName})
			}
		}
	}
	return out, nil
}

// serves reports whether a device with these requests belongs to the given request. A subrequest belongs to its
// request.
func serves(requests []string, request string) bool {
	return request == "" || len(requests) == 0 || slices.ContainsFunc(requests, func(r string) bool {
		base, _, _ := strings.Cut(r, "/")
		return base == request || r == request
	})
}
