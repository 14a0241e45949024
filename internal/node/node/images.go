package node

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxNames is how many names of one image are shown.
const maxNames = 5

// images turns the runtime's list into the node's: the largest first, at most
// limit of them (-1: all), digests before tags.
func images(list []*runtimeapi.Image, limit int) []v1.ContainerImage {
	var out []v1.ContainerImage
	for _, i := range list {
		var names []string
		names = append(names, i.GetRepoDigests()...)
		names = append(names, i.GetRepoTags()...)
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(i.GetSize())})
	}
	slices.SortStableFunc(out, func(a, b v1.ContainerImage) int {
		// Images of one size keep an order, or each status would differ.
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	if limit >= 0 {
		out = out[:min(len(out), limit)]
	}
	return out
}
