package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages lists the images that match; a nil filter matches all.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.image.ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: filter})
	return resp.GetImages(), failed("list images", "", err)
}

// ImageStatus reads one image; the image in the answer is nil when the runtime
// does not have it.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
	return resp, failed("read image", image.GetImage(), err)
}

// PullImage pulls an image and returns the runtime's reference of it. It has no
// time limit but that of ctx: runtimes give up by themselves when a registry
// stops sending.
func (c *Client) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := c.image.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	return resp.GetImageRef(), failed("pull image", image.GetImage(), err)
}

// RemoveImage removes an image. Removing one that is gone is not an error.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: image})
	return failed("remove image", image.GetImage(), err)
}

// ImageFsInfo reads how full the file systems of images and containers are.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	return resp, failed("read image file system", "", err)
}
