package builtin

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// memorySize bounds a volume in memory, in bytes: by what the node can give, by
// what the pod may use if that is bounded, and by the volume's own limit.
func memorySize(p *v1.Pod, limit *apiresource.Quantity, allocatable v1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	bound := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	// With the overhead, as the pod's cgroup has it.
	if limits := resource.PodLimits(p, resource.PodResourcesOptions{}); pod.Limits(p, v1.ResourceMemory) {
		bound(limits.Memory().Value())
	}
	if limit != nil {
		bound(limit.Value())
	}
	return size
}

// pageSize is the size of huge pages of a volume of the given medium:
// HugePages-2Mi names it, plain HugePages means the one size that the pod uses.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (int64, error) {
	var used []string
	for _, c := range pod.Containers(p) {
		for _, list := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name := range list {
				if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok && !slices.Contains(used, size) {
					used = append(used, size)
				}
			}
		}
	}
	slices.Sort(used)
	var size string
	if named, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		if !slices.Contains(used, named) {
			return 0, noHugePages(medium)
		}
		size = named
	} else {
		switch len(used) {
		case 0:
			return 0, noHugePages(medium)
		case 1:
		default:
			return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
		}
		size = used[0]
	}
	q, err := apiresource.ParseQuantity(size)
	if err != nil {
		return 0, fmt.Errorf("parse size of huge pages %q: %w", size, err)
	}
	return q.Value(), nil
}

func noHugePages(medium v1.StorageMedium) error {
	return fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
}
