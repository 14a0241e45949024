package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
)

// Minimum CPU shares and quota, in millicores: the kernel has the same value for a smaller
// request or limit.
const (
	leastRequest = 2
	leastLimit   = 10
)

// actuated returns the actuated resources of a running container: CPU and memory limit as
// the runtime reports them, of the rest what was last actuated. Only resources that are
// allocated are shown.
func actuated(f Facts, granted *v1.Container, c pod.Container) *v1.ResourceRequirements {
	out := granted.Resources.DeepCopy()
	var given v1.ResourceRequirements
	if _, spec, ok := pod.Find(f.actuated(), granted.Name); ok {
		given = spec.Resources
	}
	show(out.Requests, given.Requests, v1.ResourceMemory, 0)
	show(out.Requests, given.Requests, v1.ResourceCPU, leastRequest)
	show(out.Limits, given.Limits, v1.ResourceMemory, 0)
	show(out.Limits, given.Limits, v1.ResourceCPU, leastLimit)
	if c.Resources != nil {
		show(out.Requests, c.Resources.Requests, v1.ResourceCPU, leastRequest)
		show(out.Limits, c.Resources.Limits, v1.ResourceCPU, leastLimit)
		show(out.Limits, c.Resources.Limits, v1.ResourceMemory, 0)
	}
	return out
}

// show replaces the allocated by the actuated quantity, unless both are below the kernel's
// minimum. An equal quantity keeps its notation.
func show(out, force v1.ResourceList, name v1.ResourceName, least int64) {
	granted, shown := out[name]
	is, known := force[name]
	if !shown || !known || is.Cmp(granted) == 0 || tiny(is, least) && tiny(granted, least) {
		return
	}
	out[name] = is
}

func tiny(q resource.Quantity, least int64) bool { return q.MilliValue() <= least }
