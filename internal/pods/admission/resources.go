package admission

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// resources checks that the pod's requests are available: the number of pods, then CPU,
// memory and ephemeral storage, then the rest by name.
func resources(in Input) *pod.Rejection {
	for l := range lacks(in) {
		return outOf(l.name, l.asked, l.used, l.capacity)
	}
	return nil
}

// lack is an insufficient resource.
type lack struct {
	name                  v1.ResourceName
	asked, used, capacity int64
}

// missing is the amount that victims would have to release.
func (l lack) missing() int64 { return l.asked - (l.capacity - l.used) }

// lacks yields the insufficient resources, in the order of the checks.
func lacks(in Input) iter.Seq[lack] {
	return func(yield func(lack) bool) { eachLack(in, yield) }
}

func eachLack(in Input, yield func(lack) bool) {
	if capacity := in.Allocatable.Pods().Value(); int64(len(in.Others))+1 > capacity {
		if !yield(lack{v1.ResourcePods, 1, int64(len(in.Others)), capacity}) {
			return
		}
	}
	asked := requests(in.Pod)
	used := map[v1.ResourceName]int64{}
	for _, other := range in.Others {
		for name, q := range requests(other) {
			used[name] += q
		}
	}
	for _, name := range order(asked) {
		if slices.Contains(in.Late.Resources, string(name)) {
			continue // the amount is not known yet
		}
		have, known := in.Allocatable[name]
		if !known && pod.IsExtended(name) {
			continue // not the node's: the scheduler accounts for it
		}
		capacity := amount(name, have.MilliValue, have.Value)
		if asked[name] > 0 && asked[name] > capacity-used[name] {
			if !yield(lack{name, asked[name], used[name], capacity}) {
				return
			}
		}
	}
}

// requests returns a pod's requests: CPU in millicores, the rest in whole units.
func requests(p *v1.Pod) map[v1.ResourceName]int64 {
	out := map[v1.ResourceName]int64{}
	for name, q := range resource.PodRequests(withoutClaimed(p), resource.PodResourcesOptions{}) {
		out[name] = amount(name, q.MilliValue, q.Value)
	}
	return out
}

// withoutClaimed is the pod without extended resources that a resource claim backs: the claim accounts for them.
func withoutClaimed(p *v1.Pod) *v1.Pod {
	claimed := p.Status.ExtendedResourceClaimStatus
	if claimed == nil {
		return p
	}
	p = p.DeepCopy()
	for _, m := range claimed.RequestMappings {
		if _, c, ok := pod.Find(p, m.ContainerName); ok {
			delete(c.Resources.Requests, v1.ResourceName(m.ResourceName))
		}
	}
	return p
}

func amount(name v1.ResourceName, milli, whole func() int64) int64 {
	if name == v1.ResourceCPU {
		return milli()
	}
	return whole()
}

func order(asked map[v1.ResourceName]int64) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(asked)), func(n v1.ResourceName) bool {
		return slices.Contains(first,
			n)
	})
	return append(first, rest...)
}

func outOf(name v1.ResourceName, asked, used, capacity int64) *pod.Rejection {
	return &pod.Rejection{
		Reason: ReasonOutOf + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, asked, used, capacity),
	}
}
