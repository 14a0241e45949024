package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// CreateContainer creates a container in a sandbox.
func (c *Client) CreateContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	const verb = "create container"
	object := req.GetConfig().GetMetadata().GetName() + " in sandbox " + req.GetPodSandboxId()
	resp, err := change(ctx, c, c.timeout, c.runtime.CreateContainer, req, verb, object)
	return identified(resp, err, (*runtimeapi.CreateContainerResponse).GetContainerId, verb, object)
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.StartContainer, req, "start container", req.GetContainerId())
}

// StopContainer asks the container to stop and kills it after the timeout in the
// request. It returns when the container has ended; stopping one that has ended
// or is gone is not an error to runtimes. It may take as long as its timeout and
// the request timeout together.
func (c *Client) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return call(ctx, pod.Seconds(req.GetTimeout())+c.timeout, c.runtime.StopContainer, req, "stop container", req.GetContainerId())
}

// RemoveContainer removes a container, by force if it runs. Removing one that is
// gone is not an error.
func (c *Client) RemoveContainer(ctx context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.RemoveContainer, req, "remove container", req.GetContainerId())
}

// ListContainers lists the containers that match; without a filter, all.
func (c *Client) ListContainers(ctx context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if list, ok, err := c.streamContainers(ctx, req.GetFilter()); ok {
		return &runtimeapi.ListContainersResponse{Containers: list}, err
	}
	return call(ctx, c.timeout, c.runtime.ListContainers, req, "list containers", "")
}

// ContainerStatus reads one container.
func (c *Client) ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return call(ctx, c.timeout, c.runtime.ContainerStatus, req, "read container", req.GetContainerId())
}

// UpdateContainerResources changes limits of a container while it runs.
func (c *Client) UpdateContainerResources(ctx context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return change(ctx, c, c.timeout, c.runtime.UpdateContainerResources, req, "update resources of container", req.GetContainerId())
}

// ReopenContainerLog makes the runtime write to a new log file.
func (c *Client) ReopenContainerLog(ctx context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return call(ctx, c.timeout, c.runtime.ReopenContainerLog, req, "reopen log of container", req.GetContainerId())
}

// ExecSync runs a command in a container and returns its output and exit code;
// an exit code other than zero is not an error. The runtime ends the command
// after the timeout in the request, for which it gets the request timeout on
// top. A timeout of zero means no limit but that of ctx. A runtime that tells of
// neither in time counts as one that is away: [IsTimeout] is the command's alone.
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

// Exec returns the address at which a command in a container can be driven.
func (c *Client) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return call(ctx, c.timeout, c.runtime.Exec, req, "prepare command in container", req.GetContainerId())
}

// Attach returns the address at which a container's streams can be reached.
func (c *Client) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return call(ctx, c.timeout, c.runtime.Attach, req, "attach to container", req.GetContainerId())
}

// CheckpointContainer writes a checkpoint of a running container to a file. It
// may take as long as its timeout and the request timeout together.
func (c *Client) CheckpointContainer(ctx context.Context, req *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return call(ctx, pod.Seconds(req.GetTimeout())+c.timeout, c.runtime.CheckpointContainer, req, "checkpoint container", req.GetContainerId())
}
