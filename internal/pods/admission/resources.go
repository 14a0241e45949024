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

// resources checks that what the pod asks for is left on the node: room for one
// more pod, then CPU, memory and ephemeral storage, then the rest by name.
func resources(in Input) *Rejection {
	for l := range lacks(in) {
		return outOf(l.name, l.asked, l.used, l.capacity)
	}
	return nil
}

// lack is a resource of which too little is left.
type lack struct {
	name                  v1.ResourceName
	asked, used, capacity int64
}

// missing is how much of it others would have to give back.
func (l lack) missing() int64 { return l.asked - (l.capacity - l.used) }

// lacks are what there is too little of, in the order in which it is told.
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
			continue // somebody else's: the cluster keeps count of it
		}
		capacity := amount(name, have.MilliValue, have.Value)
		if asked[name] > 0 && asked[name] > capacity-used[name] {
			if !yield(lack{name, asked[name], used[name], capacity}) {
				return
			}
		}
	}
}

// requests are what a pod takes up: CPU in thousandths, the rest in whole units.
func requests(p *v1.Pod) map[v1.ResourceName]int64 {
	out := map[v1.ResourceName]int64{}
	for name, q := range resource.PodRequests(withoutClaimed(p), resource.PodResourcesOptions{}) {
		out[name] = amount(name, q.MilliValue, q.Value)
	}
	return out
}

// withoutClaimed is the pod without the devices that its containers have by a claim,
// which are counted there.
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
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(asked)), func(n v1.ResourceName) bool { return slices.Contains(first, n) })
	return append(first, rest...)
}

func outOf(name v1.ResourceName, asked, used, capacity int64) *Rejection {
	return &Rejection{
		Reason:  ReasonOutOf + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, asked, used, capacity),
	}
}
