package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// opener opens a streaming list call.
type opener[Req, Part any] func(context.Context, *Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Part], error)

// streamed makes a streaming list call, which has no size limit. It returns false if the unary call
// is to be used instead: because streaming is off, or because the runtime does not implement it,
// which is remembered.
func streamed[Req, Part, Item any](
	ctx context.Context, c *Client, name string, open opener[Req, Part], req *Req, items func(*Part) []Item, verb string,
) (all []Item, ok bool, err error) {
	if !c.streams {
		return nil, false, nil
	}
	if _, lacks := c.noStream.Load(name); lacks {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	all, err = collect(ctx, open, req, items)
	if IsUnimplemented(err) {
		c.noStream.Store(name, true)
		return nil, false, nil
	}
	if c.observe != nil {
		c.observe(name, time.Since(start), err)
	}
	if err != nil {
		return nil, true, failed(verb, "", err)
	}
	return all, true, nil
}

func collect[Req, Part, Item any](
	ctx context.Context, open opener[Req, Part], req *Req, items func(*Part) []Item,
) ([]Item, error) {
	stream, err := open(ctx, req)
	if err != nil {
		return nil, err
	}
	var all []Item
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, items(part)...)
	}
}

func (c *Client) streamContainers(
	ctx context.Context, f *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, bool, error) {
	return streamed(ctx, c, "StreamContainers", c.runtime.StreamContainers,
		&runtimeapi.StreamContainersRequest{Filter: f},
		(*runtimeapi.StreamContainersResponse).GetContainers, "list containers")
}

func (c *Client) streamSandboxes(
	ctx context.Context, f *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, bool, error) {
	return streamed(ctx, c, "StreamPodSandboxes", c.runtime.StreamPodSandboxes,
		&runtimeapi.StreamPodSandboxesRequest{Filter: f},
		(*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes, "list sandboxes")
}

func (c *Client) streamImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, bool, error) {
	return streamed(ctx, c, "StreamImages", c.image.StreamImages, &runtimeapi.StreamImagesRequest{Filter: f},
		(*runtimeapi.StreamImagesResponse).GetImages, "list images")
}

func (c *Client) streamContainerStats(
	ctx context.Context, f *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, bool, error) {
	return streamed(ctx, c, "StreamContainerStats", c.runtime.StreamContainerStats,
		&runtimeapi.StreamContainerStatsRequest{Filter: f},
		(*runtimeapi.StreamContainerStatsResponse).GetContainerStats, "list usage of containers")
}

func (c *Client) streamSandboxStats(
	ctx context.Context, f *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, bool, error) {
	return streamed(ctx, c, "StreamPodSandboxStats", c.runtime.StreamPodSandboxStats,
		&runtimeapi.StreamPodSandboxStatsRequest{Filter: f},
		(*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats, "list usage of sandboxes")
}

func (c *Client) streamSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, bool, error) {
	return streamed(ctx, c, "StreamPodSandboxMetrics", c.runtime.StreamPodSandboxMetrics,
		&runtimeapi.StreamPodSandboxMetricsRequest{},
		(*runtimeapi.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics, "list metrics of sandboxes")
}
