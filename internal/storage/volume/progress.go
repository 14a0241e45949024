package volume

import (
	"context"
	"sync"
	"time"
)

type aliveKey struct{}

// withProgressTimeout returns a context that ends after a time without progress, which [Alive] reports.
func withProgressTimeout(parent context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(patience, func() { cancel(context.DeadlineExceeded) })
	ctx = context.WithValue(ctx, aliveKey{}, func() { timer.Reset(patience) })
	return ctx, sync.OnceFunc(func() {
		timer.Stop()
		cancel(context.Canceled)
	})
}

// Alive reports progress of the attempt with this context and extends its deadline. Long-running
// work must call it periodically, and must end by itself.
func Alive(ctx context.Context) {
	if alive, ok := ctx.Value(aliveKey{}).(func()); ok {
		alive()
	}
}
