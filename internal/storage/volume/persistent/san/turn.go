package san

import (
	"context"
	"fmt"
	"sync"
)

// turns lets one at a time come to a target or leave it: who leaves must know who
// else is there.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	taken chan struct{} // capacity 1; who has put in may speak to the target
	users int           // who have it or wait; guarded by turns.mu
}

// take waits for the target's turn. It is given back by what take returns.
func (t *turns) take(ctx context.Context, target string) (give func(), err error) {
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
