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

// memorySize returns the size limit of a memory-backed volume: the minimum of the node's
// allocatable memory, the pod's memory limit, and the volume's sizeLimit.
func memorySize(p *v1.Pod, limit *apiresource.Quantity, allocatable v1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	bound := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	// Including the overhead, like the pod's cgroup.
	if limits := resource.PodLimits(p, resource.PodResourcesOptions{}); pod.Limits(p, v1.ResourceMemory) {
		bound(limits.Memory().Value())
	}
	if limit != nil {
		bound(limit.Value())
	}
	return size
}

// pageSize returns the huge page size for a medium: HugePages-2Mi names it, HugePages means the
// only size that the pod and its containers request. Sizes are compared by value: 2048Ki equals
// 2Mi.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (int64, error) {
	sizes, err := pageSizes(p)
	if err != nil {
		return 0, err
	}
	var size int64
	if named, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		if size, err = parsePageSize(named); err != nil {
			return 0, err
		}
	} else if len(sizes) > 1 {
		return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
	} else if len(sizes) == 1 {
		size = sizes[0]
	}
	if !slices.Contains(sizes, size) {
		return 0, noHugePages(medium)
	}
	return size, nil
}

// pageSizes returns the huge page sizes that the pod or its containers request.
func pageSizes(p *v1.Pod) ([]int64, error) {
	var lists []v1.ResourceList
	if r := p.Spec.Resources; r != nil {
		lists = append(lists, r.Requests, r.Limits)
	}
	for _, c := range pod.Containers(p) {
		lists = append(lists, c.Resources.Requests, c.Resources.Limits)
	}
	var sizes []int64
	for _, list := range lists {
		for name := range list {
			text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			size, err := parsePageSize(text)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
	}
	return sizes, nil
}

func parsePageSize(text string) (int64, error) {
	q, err := apiresource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("parse size of huge pages %q: %w", text, err)
	}
	return q.Value(), nil
}

func noHugePages(medium v1.StorageMedium) error {
	return fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
}
