package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats reads the usage of one container.
func (c *Client) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	return resp.GetStats(), failed("read usage of container", id, err)
}

// ListContainerStats reads the usage of the containers that match.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return resp.GetStats(), failed("list usage of containers", "", err)
}

// PodSandboxStats reads the usage of one pod.
func (c *Client) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id})
	return resp.GetStats(), failed("read usage of sandbox", id, err)
}

// ListPodSandboxStats reads the usage of the pods that match.
func (c *Client) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	return resp.GetStats(), failed("list usage of sandboxes", "", err)
}

// ListMetricDescriptors names the metrics that the runtime itself keeps.
func (c *Client) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	return resp.GetDescriptors(), failed("list metric descriptors", "", err)
}

// ListPodSandboxMetrics reads the metrics that the runtime itself keeps.
func (c *Client) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	return resp.GetPodMetrics(), failed("list metrics of sandboxes", "", err)
}
