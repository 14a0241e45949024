package container

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Scores that the kernel adds when it chooses what to kill for want of memory.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// oomScore spreads burstable containers between the classes: the larger the
// part of the machine's memory a container asked for, the later it goes. A
// sidecar goes no earlier than the first of the containers that it serves.
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
		for i := range p.Spec.Containers {
			req := value(get(p.Spec.Containers[i].Resources.Requests, v1.ResourceMemory))
			score = min(score, burstableScore(req+extra, memory))
		}
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

// podMemoryPerContainer shares what the pod as a whole asks for and no
// container does between the containers that run for its whole life.
func podMemoryPerContainer(p *v1.Pod) int64 {
	if p.Spec.Resources == nil {
		return 0
	}
	left := value(get(p.Spec.Resources.Requests, v1.ResourceMemory))
	n := int64(0)
	for kind, c := range pod.Containers(p) {
		if kind == pod.Regular || kind == pod.Sidecar {
			left -= value(get(c.Resources.Requests, v1.ResourceMemory))
			n++
		}
	}
	if left <= 0 || n == 0 {
		return 0
	}
	return left / n
}
