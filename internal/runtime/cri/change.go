package cri

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// farewell is how long calls that change something may go on when the agent is asked
// to end. Making a sandbox takes a few seconds on a busy machine; a service manager
// waits 90 seconds by default before it kills.
const farewell = 10 * time.Second

// Run waits for the end of ctx. Calls under way that change something then have ten
// seconds left.
func (c *Client) Run(ctx context.Context) error {
	<-ctx.Done()
	time.AfterFunc(farewell, c.giveUp)
	return nil
}

// change is call for what changes something in the runtime. A change is not made once
// ctx has ended, but one that has begun is not cancelled with ctx: it ends by itself,
// or at limit. containerd (seen with 2.4.2) cancels its own work with the context of
// the request and may then lose track of what it has made: a shim, with the network
// namespace of its sandbox, stays until the machine is restarted.
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
		// The runtime has the same deadline, and may break the stream with other words first.
		err = failed(verb, object, status.FromContextError(context.DeadlineExceeded).Err())
	}
	return resp, err
}
