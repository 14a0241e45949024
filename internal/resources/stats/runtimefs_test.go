package stats

import (
	"context"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oneFS is a runtime that has containers and images on one file system.
type oneFS struct{ *ground }

func (r oneFS) ImageFsInfo(
	ctx context.Context, req *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	resp, err := r.ground.ImageFsInfo(ctx, req)
	resp.ContainerFilesystems = nil
	return resp, err
}

// TestContainerFilesystem checks that the container file system is the image file system if the runtime reports no
// other.
func TestContainerFilesystem(t *testing.T) {
	g := newGround(t, true)
	g.cfg.Runtime = oneFS{g}
	s, err := New(g.cfg).Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	images, containers := s.Node.Runtime.ImageFs, s.Node.Runtime.ContainerFs
	if containers == nil || *containers.UsedBytes != 1000 || *containers.InodesUsed != 10 ||
		*containers.CapacityBytes != *images.CapacityBytes {
		t.Errorf("images %s, containers %s", show(images), show(containers))
	}
	if rootfs := s.Pods[0].Containers[0].Rootfs; rootfs == nil || *rootfs.UsedBytes != 4096 {
		t.Errorf("layer of a container %s", show(rootfs))
	}
}
