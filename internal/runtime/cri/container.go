package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container in a sandbox and returns its id.
func (c *Client) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox})
	if err != nil {
		return "", failed("create container", config.GetMetadata().GetName()+" in sandbox "+sandboxID, err)
	}
	return resp.ContainerId, nil
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return failed("start container", id, err)
}

// StopContainer asks the container to stop and kills it after grace, which is
// sent in whole seconds. It returns when the container has ended; stopping one
// that has ended or is gone is not an error to runtimes. It may take as long as
// grace and the request timeout together.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := within(ctx, grace+c.timeout)
	defer cancel()
	_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace / time.Second)})
	return failed("stop container", id, err)
}

// RemoveContainer removes a container, by force if it runs. Removing one that is
// gone is not an error.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return failed("remove container", id, err)
}

// ListContainers lists the containers that match; a nil filter matches all.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	return resp.GetContainers(), failed("list containers", "", err)
}

// ContainerStatus reads one container.
func (c *Client) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
	return resp, failed("read container", id, err)
}

// UpdateContainerResources changes limits of a container while it runs.
func (c *Client) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources})
	return failed("update resources of container", id, err)
}

// ReopenContainerLog makes the runtime write to a new log file.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return failed("reopen log of container", id, err)
}

// ExecSync runs a command in a container and returns its output and exit code;
// an exit code other than zero is not an error. The runtime ends the command
// after timeout, for which it gets the request timeout on top. A timeout of
// zero means no limit but that of ctx.
func (c *Client) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = within(ctx, timeout+c.timeout)
		defer cancel()
	}
	// The interface counts whole seconds, and zero is no limit at all: round up.
	seconds := int64((timeout + time.Second - 1) / time.Second)
	resp, err := c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	return resp, failed("run command in container", id, err)
}

// Exec returns the address at which a command in a container can be driven.
func (c *Client) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.Exec(ctx, req)
	return resp, failed("prepare command in container", req.GetContainerId(), err)
}

// Attach returns the address at which a container's streams can be reached.
func (c *Client) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	resp, err := c.runtime.Attach(ctx, req)
	return resp, failed("attach to container", req.GetContainerId(), err)
}

// CheckpointContainer writes a checkpoint of a running container to a file. The
// timeout in the request is added to the request timeout.
func (c *Client) CheckpointContainer(ctx context.Context, req *runtimeapi.CheckpointContainerRequest) error {
	ctx, cancel := within(ctx, time.Duration(req.GetTimeout())*time.Second+c.timeout)
	defer cancel()
	_, err := c.runtime.CheckpointContainer(ctx, req)
	return failed("checkpoint container", req.GetContainerId(), err)
}
