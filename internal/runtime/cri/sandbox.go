package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates and starts a sandbox and returns its id. It may take
// twice the request timeout.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error) {
	ctx, cancel := within(ctx, 2*c.timeout)
	defer cancel()
	resp, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: runtimeHandler})
	if err != nil {
		m := config.GetMetadata()
		return "", failed("run sandbox", m.GetNamespace()+"/"+m.GetName(), err)
	}
	return resp.PodSandboxId, nil
}

// StopPodSandbox stops the sandbox and whatever runs in it. Stopping one that
// is stopped is not an error.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return failed("stop sandbox", id, err)
}

// RemovePodSandbox removes the sandbox and its containers. Removing one that is
// gone is not an error.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return failed("remove sandbox", id, err)
}

// PodSandboxStatus reads one sandbox.
func (c *Client) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
	return resp, failed("read sandbox", id, err)
}

// ListPodSandbox lists the sandboxes that match; a nil filter matches all.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	return resp.GetItems(), failed("list sandboxes", "", err)
}

// UpdatePodSandboxResources tells the runtime of new resources of a pod, which
// are in force already. Runtimes may lack the call.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.UpdatePodSandboxResources(ctx, req)
	return failed("update resources of sandbox", req.GetPodSandboxId(), err)
}

// PortForward returns the address at which ports of the sandbox can be reached.
func (c *Client) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.PortForward(ctx, req)
	return resp, failed("forward ports of sandbox", req.GetPodSandboxId(), err)
}
