package gc

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// containers lists all containers of the runtime, including those that do not belong to a pod.
type containers interface {
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
}

// seen is the cache of the last observed state of the runtime.
type seen interface {
	UIDs() []types.UID
	Get(types.UID) (pod.Runtime, bool)
}

// InUse returns a function that lists the images in use: those of all containers, those of image volumes, and those
// that are about to be used, which pulled returns.
func InUse(runtime containers, observed seen, pulled func() []string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		used := pulled()
		for _, uid := range observed.UIDs() {
			have, _ := observed.Get(uid) // possibly outdated
			for _, c := range have.Containers {
				for _, m := range c.Mounts {
					if m.Image != "" {
						used = append(used, m.Image)
					}
				}
			}
		}
		resp, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return nil, err
		}
		for _, c := range resp.GetContainers() {
			used = append(used, cmp.Or(c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()))
		}
		return used, nil
	}
}
