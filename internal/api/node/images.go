package node

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxNames is the maximum number of names per image.
const maxNames = 5

// images converts the runtime's list of images: the largest first, at most limit of them (-1: all), digests before
// tags.
func images(list []*runtimeapi.Image, limit int) []v1.ContainerImage {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *runtimeapi.Image) int {
		// Images of the same size have upstream's order, so that the status does not change each time.
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(b.GetId(), a.GetId()))
	})
	if limit >= 0 {
		list = list[:min(len(list), limit)]
	}
	var out []v1.ContainerImage
	for _, i := range list {
		var names []string
		names = append(names, i.GetRepoDigests()...)
		names = append(names, i.GetRepoTags()...)
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(i.GetSize())})
	}
	return out
}
