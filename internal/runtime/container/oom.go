package container

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Values of oom_score_adj.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// oomScore is the oom_score_adj of a container: for burstable pods, the larger the
// part of the machine's memory that it requests, the lower. A sidecar's is no higher
// than that of the regular container that requests least (KEP-753).
func oomScore(p *v1.Pod, c *v1.Container, kind pod.Kind, memory int64) int64 {
	switch {
	case pod.IsNodeCritical(p) || pod.QOS(p) == v1.PodQOSGuaranteed:
		return oomGuaranteed
	case pod.QOS(p) == v1.PodQOSBestEffort:
		return oomBestEffort
	}
	extra := podMemoryPerContainer(p)
	score := burstableScore(value(get(c.Resources.Requests, v1.ResourceMemory))+extra, memory)
	if kind == pod.Sidecar {
		regular := int64(0)
		for i := range p.Spec.Containers {
			req := value(get(p.Spec.Containers[i].Resources.Requests, v1.ResourceMemory))
			regular = max(regular, burstableScore(req+extra, memory))
		}
		score = min(score, regular)
	}
	return score
}

func burstableScore(request, memory int64) int64 {
	if memory <= 0 {
		return oomBestEffort - 1
	}
	score := 1000 - 1000*request/memory
	return min(max(score, 1000+oomGuaranteed), oomBestEffort-1)
}

// podMemoryPerContainer is the pod-level memory request beyond the sum over the containers,
// divided equally among all regular and init containers (KEP-2837). The sum counts init
// containers as in the pod's effective request.
func podMemoryPerContainer(p *v1.Pod) int64 {
	if p.Spec.Resources == nil || p.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requested := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	left := p.Spec.Resources.Requests.Memory().Value() - requested.Memory().Value()
	return left / int64(len(p.Spec.Containers)+len(p.Spec.InitContainers))
}
