package san

import (
	"context"
	"fmt"
	"sync"
)

// targetLocks serializes attach and detach per target: a detach depends on which other disks use
// the target.
type targetLocks struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	taken chan struct{} // capacity 1; a semaphore for operations on the target
	users int           // holders and waiters; guarded by targetLocks.mu
}

// take waits for other operations on the target. It returns the function that ends this one.
func (t *targetLocks) take(ctx context.Context, target string) (give func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	own := t.of[target]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		t.of[target] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.of, target)
		}
	}
	select {
	case own.taken <- struct{}{}:
		return func() { <-own.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for another operation on target %s: %w", target, context.Cause(ctx))
	}
}
