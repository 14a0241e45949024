package cri

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// shutdownGrace is how long calls that change state may continue when the agent is asked to exit.
// Creating a sandbox takes a few seconds on a busy machine. systemd waits 90 seconds by default
// before it kills a service.
const shutdownGrace = 10 * time.Second

// Run waits for ctx to end. Calls under way that change state may then continue for shutdownGrace.
func (c *Client) Run(ctx context.Context) error {
	<-ctx.Done()
	time.AfterFunc(shutdownGrace, c.giveUp)
	return nil
}

// change is call for requests that change state in the runtime. It does nothing if ctx has ended,
// but a call that has begun is not cancelled with ctx; it ends by itself or at limit. containerd
// (seen with 2.4.2) cancels its own work with the context of the request and may then lose track of
// what it created: a shim process and the network namespace of its sandbox leak until the machine
// is rebooted.
func change[Req, Resp any](
	ctx context.Context, c *Client, limit time.Duration,
	do func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req, verb, object string,
) (*Resp, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(verb, object, status.FromContextError(err).Err())
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(c.begun, cancel)()
	resp, err := call(whole, 0, do, req, verb, object)
	if end, _ := whole.Deadline(); err != nil && !time.Now().Before(end) {
		// The runtime has the same deadline and may reset the stream first, with another error.
		err = failed(verb, object, status.FromContextError(context.DeadlineExceeded).Err())
	}
	return resp, err
}
