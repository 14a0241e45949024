package access

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/host/clock"
)

// retries is the back-off between attempts, one more than it has steps.
var retries = wait.Backoff{
	Duration: 500 * time.Millisecond,
	Factor:   1.5,
	Jitter:   0.2,
	Steps:    4,
}

// withRetry makes a call with retries. It returns the error of the last attempt.
func withRetry(ctx context.Context, call func(context.Context) error) error {
	for backoff := retries; ; {
		err := call(ctx)
		if err == nil || backoff.Steps == 0 || !retriable(err) || !clock.Sleep(ctx, backoff.Step()) {
			return err
		}
	}
}

// retriable reports whether a retry may succeed.
func retriable(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}
