package cri

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// ListImages lists the images that match the filter.
func (c *Client) ListImages(
	ctx context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	if list, ok, err := c.streamImages(ctx, req.GetFilter()); ok {
		return &runtimeapi.ListImagesResponse{Images: list}, err
	}
	return call(ctx, c.timeout, c.image.ListImages, req, "list images", "")
}

// ImageStatus returns the status of one image. The image in the response is nil if the runtime does
// not have it.
func (c *Client) ImageStatus(
	ctx context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	resp, err := call(ctx, c.timeout, c.image.ImageStatus, req, "read image", req.GetImage().GetImage())
	if resp.GetImage() == nil {
		return resp, err
	}
	return identified(resp, err, func(r *runtimeapi.ImageStatusResponse) string { return r.Image.Id }, "read image",
		req.GetImage().GetImage())
}

// PullImage pulls an image. Only ctx bounds the call; runtimes abort a pull without progress by
// themselves.
func (c *Client) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	resp, err := call(ctx, 0, c.image.PullImage, req, "pull image", req.GetImage().GetImage())
	resp, err = identified(resp, err, (*runtimeapi.PullImageResponse).GetImageRef, "pull image",
		req.GetImage().GetImage())
	if errors.Is(err, errNoID) {
		err = pod.ShowAs(fmt.Sprintf("imageRef of image %q is not set", req.GetImage().GetImage()), err)
	}
	return resp, err
}

// RemoveImage removes an image. Removing one that does not exist is not an error.
func (c *Client) RemoveImage(
	ctx context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	return change(ctx, c, c.timeout, c.image.RemoveImage, req, "remove image", req.GetImage().GetImage())
}

// ImageFsInfo returns the usage of the image and container file systems.
func (c *Client) ImageFsInfo(
	ctx context.Context, req *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, c.timeout, c.image.ImageFsInfo, req, "read image file system", "")
}
