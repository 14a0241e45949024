package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOS is the pod's quality-of-service class: the stored one if there is one, because it is
// immutable, else computed from requests and limits.
func QOS(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return computeQOS(&p.Spec)
}

// computeQOS follows KEP-2837 for pod-level resources, which replace those of
// the containers when they are set. Only CPU and memory above zero count.
func computeQOS(s *v1.PodSpec) v1.PodQOSClass {
	if s.Resources != nil && len(s.Resources.Requests)+len(s.Resources.Limits) > 0 {
		return qosOf([]v1.ResourceRequirements{*s.Resources})
	}
	var rs []v1.ResourceRequirements
	for i := range s.InitContainers {
		rs = append(rs, s.InitContainers[i].Resources)
	}
	for i := range s.Containers {
		rs = append(rs, s.Containers[i].Resources)
	}
	return qosOf(rs)
}

func qosOf(rs []v1.ResourceRequirements) v1.PodQOSClass {
	any, guaranteed := false, true
	for _, r := range rs {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			req, lim := positive(r.Requests, name), positive(r.Limits, name)
			any = any || req != nil || lim != nil
			if lim == nil || req != nil && req.Cmp(*lim) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}

func positive(l v1.ResourceList, n v1.ResourceName) *resource.Quantity {
	q, ok := l[n]
	if !ok || q.Sign() <= 0 {
		return nil
	}
	return &q
}
