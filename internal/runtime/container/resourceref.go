package container

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
)

// resourceValue is what a resourceFieldRef of an environment stands for: a
// request or limit of a container of the pod, in units of the divisor, rounded
// up. A limit that is not set is as much as the pod, or else the node, has.
func resourceValue(p *v1.Pod, self *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	c := self
	if ref.ContainerName != "" && ref.ContainerName != self.Name {
		var ok bool
		if _, c, ok = pod.Find(p, ref.ContainerName); !ok {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	switch {
	case res == v1.ResourceCPU, res == v1.ResourceMemory, res == v1.ResourceEphemeralStorage:
	case strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	var q *resource.Quantity
	switch kind {
	case "requests":
		q = get(c.Resources.Requests, res)
	case "limits":
		q = get(c.Resources.Limits, res)
		if (q == nil || q.IsZero()) && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
			q = atMost(get(allocatable, res), podLimit(p, res))
		}
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	return inUnits(q, ref.Divisor, res == v1.ResourceCPU), nil
}

func podLimit(p *v1.Pod, name v1.ResourceName) *resource.Quantity {
	if p.Spec.Resources == nil {
		return nil
	}
	return get(p.Spec.Resources.Limits, name)
}

// atMost is the smaller of two bounds, either of which may be missing.
func atMost(a, b *resource.Quantity) *resource.Quantity {
	if a == nil || b != nil && !b.IsZero() && b.Cmp(*a) < 0 {
		return b
	}
	return a
}

// inUnits divides and rounds up, in thousandths where the resource has them.
func inUnits(q *resource.Quantity, divisor resource.Quantity, thousandths bool) string {
	if q == nil {
		return "0"
	}
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := q.Value(), divisor.Value()
	if thousandths {
		n, d = q.MilliValue(), divisor.MilliValue()
	}
	out := n / d
	if n%d > 0 {
		out++
	}
	return strconv.FormatInt(out, 10)
}
