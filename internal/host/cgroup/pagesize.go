package cgroup

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// pageSize returns the size of a resource such as hugepages-2Mi.
func pageSize(name v1.ResourceName) (bytes uint64, ok bool) {
	text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() <= 0 {
		return 0, false
	}
	return uint64(q.Value()), true
}

// PageSizeName returns the size as in the kernel's file names, such as 2MB.
func PageSizeName(bytes uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GB"}, {20, "MB"}, {10, "KB"}} {
		if bytes >= 1<<u.shift && bytes%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d%s", bytes>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%dB", bytes)
}
