package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates and starts a sandbox. It may take twice the request timeout.
func (c *Client) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	const verb = "run sandbox"
	object := podName(req.GetConfig().GetMetadata())
	resp, err := change(ctx, c, 2*c.timeout, c.runtime.RunPodSandbox, req, verb, object)
	return identified(resp, err, (*runtimeapi.RunPodSandboxResponse).GetPodSandboxId, verb, object)
}

// StopPodSandbox stops the sandbox and its containers. Stopping a stopped sandbox is not an error.
func (c *Client) StopPodSandbox(
	ctx context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.StopPodSandbox, req, "stop sandbox", req.GetPodSandboxId())
}

// RemovePodSandbox removes the sandbox and its containers. Removing one that does not exist is not
// an error.
func (c *Client) RemovePodSandbox(
	ctx context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.RemovePodSandbox, req, "remove sandbox", req.GetPodSandboxId())
}

// PodSandboxStatus returns the status of one sandbox.
func (c *Client) PodSandboxStatus(
	ctx context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	return call(ctx, c.timeout, c.runtime.PodSandboxStatus, req, "read sandbox", req.GetPodSandboxId())
}

// ListPodSandbox lists the sandboxes that match the filter.
func (c *Client) ListPodSandbox(
	ctx context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	if list, ok, err := c.streamSandboxes(ctx, req.GetFilter()); ok {
		return &runtimeapi.ListPodSandboxResponse{Items: list}, err
	}
	return call(ctx, c.timeout, c.runtime.ListPodSandbox, req, "list sandboxes", "")
}

// UpdatePodSandboxResources notifies the runtime of new resources of a pod, which it may reject.
// Runtimes may not implement the call.
func (c *Client) UpdatePodSandboxResources(
	ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.UpdatePodSandboxResources, req, "update resources of sandbox",
		req.GetPodSandboxId())
}

// PortForward returns the URL of the streaming server for ports of the sandbox.
func (c *Client) PortForward(
	ctx context.Context, req *runtimeapi.PortForwardRequest,
) (*runtimeapi.PortForwardResponse, error) {
	return call(ctx, c.timeout, c.runtime.PortForward, req, "forward ports of sandbox", req.GetPodSandboxId())
}

func podName(m *runtimeapi.PodSandboxMetadata) string { return m.GetNamespace() + "/" + m.GetName() }
