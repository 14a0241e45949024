package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// CreateContainer creates a container in a sandbox.
func (c *Client) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	const verb = "create container"
	object := req.GetConfig().GetMetadata().GetName() + " in sandbox " + req.GetPodSandboxId()
	resp, err := change(ctx, c, c.timeout, c.runtime.CreateContainer, req, verb, object)
	return identified(resp, err, (*runtimeapi.CreateContainerResponse).GetContainerId, verb, object)
}

// StartContainer starts a created container.
func (c *Client) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.StartContainer, req, "start container", req.GetContainerId())
}

// StopContainer sends the stop signal and kills the container after the timeout in the request. It
// returns when the container has exited. Stopping a container that has exited or does not exist is
// not an error to runtimes. The call is bounded by its timeout and the request timeout together.
func (c *Client) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	return call(ctx, pod.Seconds(req.GetTimeout())+c.timeout, c.runtime.StopContainer, req, "stop container",
		req.GetContainerId())
}

// RemoveContainer removes a container, by force if it is running. Removing one that does not exist
// is not an error.
func (c *Client) RemoveContainer(
	ctx context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.RemoveContainer, req, "remove container", req.GetContainerId())
}

// ListContainers lists the containers that match the filter.
func (c *Client) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	if list, ok, err := c.streamContainers(ctx, req.GetFilter()); ok {
		return &runtimeapi.ListContainersResponse{Containers: list}, err
	}
	return call(ctx, c.timeout, c.runtime.ListContainers, req, "list containers", "")
}

// ContainerStatus returns the status of one container.
func (c *Client) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return call(ctx, c.timeout, c.runtime.ContainerStatus, req, "read container", req.GetContainerId())
}

// UpdateContainerResources changes the limits of a running container.
func (c *Client) UpdateContainerResources(
	ctx context.Context, req *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.UpdateContainerResources, req, "update resources of container",
		req.GetContainerId())
}

// ReopenContainerLog makes the runtime reopen the log file.
func (c *Client) ReopenContainerLog(
	ctx context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	return call(ctx, c.timeout, c.runtime.ReopenContainerLog, req, "reopen log of container", req.GetContainerId())
}

// ExecSync runs a command in a container and returns its output and exit code. An exit code other
// than zero is not an error. The runtime kills the command after the timeout in the request; the
// call is bounded by that and the request timeout together. A timeout of zero means that only ctx
// bounds the call. If the runtime does not respond in time, the error is [IsUnavailable];
// [IsTimeout] means that the command timed out.
func (c *Client) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	const verb = "run command in container"
	limit := pod.Seconds(req.GetTimeout())
	if limit == 0 {
		return call(ctx, 0, c.runtime.ExecSync, req, verb, req.GetContainerId())
	}
	limit += c.timeout
	inTime, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := call(inTime, 0, c.runtime.ExecSync, req, verb, req.GetContainerId())
	if err != nil && inTime.Err() != nil && ctx.Err() == nil {
		return nil, failed(verb, req.GetContainerId(), status.Errorf(codes.Unavailable, "no answer within %v", limit))
	}
	return resp, err
}

// Exec returns the URL of the streaming server for a command in a container.
func (c *Client) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return call(ctx, c.timeout, c.runtime.Exec, req, "prepare command in container", req.GetContainerId())
}

// Attach returns the URL of the streaming server for a container's streams.
func (c *Client) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return call(ctx, c.timeout, c.runtime.Attach, req, "attach to container", req.GetContainerId())
}

// CheckpointContainer writes a checkpoint of a running container to a file. The call is bounded by
// its timeout and the request timeout together.
func (c *Client) CheckpointContainer(
	ctx context.Context, req *runtimeapi.CheckpointContainerRequest,
) (*runtimeapi.CheckpointContainerResponse, error) {
	return call(ctx, pod.Seconds(req.GetTimeout())+c.timeout, c.runtime.CheckpointContainer, req,
		"checkpoint container",
		req.GetContainerId())
}
