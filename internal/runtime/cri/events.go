package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerEvents calls handle for each event of the runtime's event stream, sequentially, until
// the stream or ctx ends. The error is never nil. A runtime without events returns Unimplemented
// (containerd before 1.7). handle must not block: containerd 2.4 blocks every container operation
// while a subscriber is slow.
func (c *Client) ContainerEvents(ctx context.Context, handle func(*runtimeapi.ContainerEventResponse)) error {
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return failed("open event stream", "", err)
	}
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("read event stream: runtime closed it: %w", err)
		}
		if err != nil {
			return failed("read event stream", "", err)
		}
		handle(ev)
	}
}
