package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats returns the usage of one container.
func (c *Client) ContainerStats(
	ctx context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	return call(ctx, c.timeout, c.runtime.ContainerStats, req, "read usage of container", req.GetContainerId())
}

// ListContainerStats returns the usage of the containers that match the filter.
func (c *Client) ListContainerStats(
	ctx context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	if list, ok, err := c.streamContainerStats(ctx, req.GetFilter()); ok {
		return &runtimeapi.ListContainerStatsResponse{Stats: list}, err
	}
	return call(ctx, c.timeout, c.runtime.ListContainerStats, req, "list usage of containers", "")
}

// PodSandboxStats returns the usage of one sandbox.
func (c *Client) PodSandboxStats(
	ctx context.Context, req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	return call(ctx, c.timeout, c.runtime.PodSandboxStats, req, "read usage of sandbox", req.GetPodSandboxId())
}

// ListPodSandboxStats returns the usage of the sandboxes that match the filter.
func (c *Client) ListPodSandboxStats(
	ctx context.Context, req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	if list, ok, err := c.streamSandboxStats(ctx, req.GetFilter()); ok {
		return &runtimeapi.ListPodSandboxStatsResponse{Stats: list}, err
	}
	return call(ctx, c.timeout, c.runtime.ListPodSandboxStats, req, "list usage of sandboxes", "")
}

// ListMetricDescriptors returns the descriptors of the runtime's own metrics.
func (c *Client) ListMetricDescriptors(
	ctx context.Context, req *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return call(ctx, c.timeout, c.runtime.ListMetricDescriptors, req, "list metric descriptors", "")
}

// ListPodSandboxMetrics returns the runtime's own metrics of sandboxes.
func (c *Client) ListPodSandboxMetrics(
	ctx context.Context, req *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	if list, ok, err := c.streamSandboxMetrics(ctx); ok {
		return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: list}, err
	}
	return call(ctx, c.timeout, c.runtime.ListPodSandboxMetrics, req, "list metrics of sandboxes", "")
}
