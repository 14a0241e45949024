package allocation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Rules are the settings that are the same for all resizes.
type Rules struct {
	InPlace        bool // pods can be resized at all
	InitContainers bool // init containers that are no sidecars, too
	PodLevel       bool // the resources of the pod as a whole, too
	// StaticCPU and StaticMemory: whole CPUs, or memory of a NUMA node, are
	// reserved for Guaranteed pods, and that cannot be changed while they run.
	StaticCPU, StaticMemory bool
	// MaySwap reports whether the container may use swap. Its swap limit was computed from its memory when it was created.
	// Nil: none may.
	MaySwap func(*v1.Pod, *v1.Container) bool
}

// refusal is why a resize is infeasible; the zero value is none.
type refusal struct {
	message string
	detail  string // for the metric
}

// saysNotFor is the prefix of the message for a resize that a resource manager does not allow.
const saysNotFor = "Resize is infeasible for Guaranteed Pods alongside "

// feasible returns the reason why a resize is infeasible. Admission decides whether the node has enough, and defers a
// resize, also one above the node's allocatable.
func (r Rules) feasible(want *v1.Pod, allocated Resources) refusal {
	if !r.InPlace {
		return refusal{"InPlacePodVerticalScaling is disabled", detailGate}
	}
	for kind, c := range pod.Containers(want) {
		was, known := allocated.Containers[c.Name]
		if kind == pod.Ephemeral || !known || same(was, c.Resources) {
			continue
		}
		if kind == pod.Init && !r.InitContainers {
			return refusal{"In-place resize of non-restartable init containers is not supported", detailInit}
		}
		memory := asksOther(was, c.Resources, v1.ResourceMemory) && !restartsFor(c, v1.ResourceMemory)
		if memory && r.MaySwap != nil && r.MaySwap(want, c) {
			return refusal{"In-place resize of containers with swap is not supported.", detailSwap}
		}
	}
	if !r.PodLevel && !samePod(allocated.Pod, want.Spec.Resources) {
		return refusal{"InPlacePodLevelResourcesVerticalScaling is disabled", detailPodLevel}
	}
	if pod.QOS(want) == v1.PodQOSGuaranteed {
		switch {
		case r.StaticCPU && allocated.differs(want, v1.ResourceCPU):
			return refusal{saysNotFor + `CPU Manager policy "static"`, detailStaticCPU}
		case r.StaticMemory && allocated.differs(want, v1.ResourceMemory):
			return refusal{saysNotFor + `Memory Manager policy "Static"`, detailStaticMemory}
		}
	}
	return refusal{}
}

// asksOther reports whether a container asks for another amount of a resource.
func asksOther(a, b v1.ResourceRequirements, name v1.ResourceName) bool {
	return amount(a.Requests, name) != amount(b.Requests, name)
}

// differs reports whether any container of the pod asks for another amount of a resource than it is allocated.
func (r Resources) differs(want *v1.Pod, name v1.ResourceName) bool {
	for kind, c := range pod.Containers(want) {
		if was, known := r.Containers[c.Name]; known && kind != pod.Ephemeral && asksOther(was, c.Resources, name) {
			return true
		}
	}
	return false
}

// amount is CPU in thousandths and all else in whole units; none is 0.
func amount(l v1.ResourceList, name v1.ResourceName) int64 {
	q, ok := l[name]
	switch {
	case !ok:
		return 0
	case name == v1.ResourceCPU:
		return q.MilliValue()
	}
	return q.Value()
}

// restartsFor reports whether the container must be restarted for a change of a resource.
func restartsFor(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}

// grows reports whether the pod asks for more of any resource.
func grows(allocated, want *v1.Pod) bool {
	was := resourcehelper.PodRequests(allocated, resourcehelper.PodResourcesOptions{})
	for name, q := range resourcehelper.PodRequests(want, resourcehelper.PodResourcesOptions{}) {
		have := was[name]
		if q.Cmp(have) > 0 {
			return true
		}
	}
	return false
}

// request is one change that a resize asks for, as the metric counts it.
type request struct{ resource, requirement, operation string }

// requests are the changes from one request to the next, container by container.
func requests(was, now Resources) []request {
	var out []request
	for name, n := range now.Containers {
		w := was.Containers[name]
		for _, res := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			for _, side := range []struct {
				requirement string
				was, now    v1.ResourceList
			}{{"limits", w.Limits, n.Limits}, {"requests", w.Requests, n.Requests}} {
				if op := operation(side.was, side.now, res); op != "" {
					out = append(out, request{string(res), side.requirement, op})
				}
			}
		}
	}
	return out
}

func operation(was, now v1.ResourceList, name v1.ResourceName) string {
	w, had := positive(was, name)
	n, has := positive(now, name)
	switch {
	case !had && !has:
		return ""
	case !had:
		return "add"
	case !has:
		return "remove"
	case n.Cmp(w) > 0:
		return "increase"
	case n.Cmp(w) < 0:
		return "decrease"
	}
	return ""
}

func positive(l v1.ResourceList, name v1.ResourceName) (resource.Quantity, bool) {
	q, ok := l[name]
	return q, ok && q.Sign() > 0
}
