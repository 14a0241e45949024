package access

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	retryFirst  = 500 * time.Millisecond
	retryFactor = 1.5
	retryJitter = 0.2
	retryTries  = 5
)

// patiently makes a call until it succeeds, fails for good, or has been tried
// often enough. It returns the error of the last try.
func patiently(ctx context.Context, call func(context.Context) error) error {
	pause := retryFirst
	for try := 1; ; try++ {
		err := call(ctx)
		if err == nil || try == retryTries || !transient(err) {
			return err
		}
		t := time.NewTimer(wait.Jitter(pause, retryJitter))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		pause = time.Duration(float64(pause) * retryFactor)
	}
}

// transient tells whether the API server may answer better the next time.
func transient(err error) bool {
	_, told := apierrors.SuggestsClientDelay(err)
	return told || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}
