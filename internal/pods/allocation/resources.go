package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"keelson/internal/pods/pod"
)

// Resources are those of a pod: of each container by its name, and of the pod as
// a whole. The field names are those of the state files. A value is not changed
// after it was made.
type Resources struct {
	Containers map[string]v1.ResourceRequirements `json:"ContainerResources"`
	Pod        *v1.ResourceRequirements           `json:"PodLevelResources"`
}

// Of returns the resources of a specification.
func Of(p *v1.Pod) Resources {
	r := Resources{Containers: map[string]v1.ResourceRequirements{}, Pod: p.Spec.Resources}
	for kind, c := range pod.Containers(p) {
		if kind != pod.Ephemeral {
			r.Containers[c.Name] = c.Resources
		}
	}
	return r
}

// Equal compares amounts, not how they are written.
func (r Resources) Equal(o Resources) bool {
	return maps.EqualFunc(r.Containers, o.Containers, same) && samePod(r.Pod, o.Pod)
}

func same(a, b v1.ResourceRequirements) bool {
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) && equality.Semantic.DeepEqual(a.Limits, b.Limits)
}

func samePod(a, b *v1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(*a, *b)
}

// On returns the pod with these resources: p itself if nothing differs. Resources of containers that they do not name
// are left as they are.
func (r Resources) On(p *v1.Pod) *v1.Pod {
	out := p
	own := func() {
		if out == p {
			copied := *p // the rest is shared and not changed
			copied.Spec.InitContainers = append([]v1.Container(nil), p.Spec.InitContainers...)
			copied.Spec.Containers = append([]v1.Container(nil), p.Spec.Containers...)
			out = &copied
		}
	}
	lay := func(list func(*v1.Pod) []v1.Container) {
		for i, c := range list(p) {
			if rr, ok := r.Containers[c.Name]; ok && !same(rr, c.Resources) {
				own()
				list(out)[i].Resources = rr
			}
		}
	}
	lay(func(p *v1.Pod) []v1.Container { return p.Spec.InitContainers })
	lay(func(p *v1.Pod) []v1.Container { return p.Spec.Containers })
	if p.Spec.Resources != nil && r.Pod != nil && !samePod(r.Pod, p.Spec.Resources) {
		own()
		out.Spec.Resources = r.Pod
	}
	return out
}

// with returns r with other resources of one container.
func (r Resources) with(container string, rr v1.ResourceRequirements) Resources {
	all := maps.Clone(r.Containers)
	if all == nil {
		all = map[string]v1.ResourceRequirements{}
	}
	all[container] = rr
	return Resources{Containers: all, Pod: r.Pod}
}

// stored returns the actuated resources according to the pod's stored status, and those of its specification where the
// status has none.
func stored(p *v1.Pod) Resources {
	r := Of(p)
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, cs := range list {
			if _, ok := r.Containers[cs.Name]; ok && cs.Resources != nil {
				r.Containers[cs.Name] = *cs.Resources
			}
		}
	}
	if p.Spec.Resources != nil && p.Status.Resources != nil {
		r.Pod = &v1.ResourceRequirements{
			Claims:   p.Spec.Resources.Claims,
			Limits:   named(p.Spec.Resources.Limits, p.Status.Resources.Limits),
			Requests: named(p.Spec.Resources.Requests, p.Status.Resources.Requests),
		}
	}
	return r
}

// named returns the amounts of those resources that the specification sets at pod level. A status also shows sums over
// the containers.
func named(spec, status v1.ResourceList) v1.ResourceList {
	var out v1.ResourceList
	for name := range spec {
		if q, ok := status[name]; ok {
			if out == nil {
				out = v1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}
