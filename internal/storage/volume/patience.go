package volume

import (
	"context"
	"sync"
	"time"
)

type aliveKey struct{}

// withPatience ends a context after a while without news. [Alive] is the news.
func withPatience(parent context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(patience, func() { cancel(context.DeadlineExceeded) })
	ctx = context.WithValue(ctx, aliveKey{}, func() { timer.Reset(patience) })
	return ctx, sync.OnceFunc(func() {
		timer.Stop()
		cancel(context.Canceled)
	})
}

// Alive says that the attempt with this context makes progress, however long it
// takes: it is not ended for its length. Work that takes long must say so now and
// then, and must end by itself.
func Alive(ctx context.Context) {
	if alive, ok := ctx.Value(aliveKey{}).(func()); ok {
		alive()
	}
}
