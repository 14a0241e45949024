package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
)

// Amounts of CPU, in thousandths, up to which the kernel cannot tell a request or
// a limit from a smaller one.
const (
	leastRequest = 2
	leastLimit   = 10
)

// inForce is what a running container has: what the runtime says of CPU and of the
// memory limit, which is as near to the kernel as there is; of the rest, what it
// was last given. What it was granted decides which of them are shown.
func inForce(f Facts, granted *v1.Container, c pod.Container) *v1.ResourceRequirements {
	out := granted.Resources.DeepCopy()
	var given v1.ResourceRequirements
	if _, spec, ok := pod.Find(f.inForce(), granted.Name); ok {
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

// show puts what is in force in place of what was granted, unless both are too
// little to be told apart. The same amount keeps the words in which it was asked
// for.
func show(out, force v1.ResourceList, name v1.ResourceName, least int64) {
	granted, shown := out[name]
	is, known := force[name]
	if !shown || !known || is.Cmp(granted) == 0 || tiny(is, least) && tiny(granted, least) {
		return
	}
	out[name] = is
}

func tiny(q resource.Quantity, least int64) bool { return q.MilliValue() <= least }
