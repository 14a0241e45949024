package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ends are the events at the end of a pod that other goroutines can wait for.
type ends struct {
	released chan struct{} // closed when the pod holds no resources of the node
	emptied  chan struct{} // closed when the runtime holds nothing of it either

	releaseOnce, emptyOnce sync.Once
}

func newEnds() *ends {
	return &ends{
		released: make(chan struct{}),
		emptied:  make(chan struct{}),
	}
}

// note records what has been released and removed.
func (e *ends) note(released, empty bool) {
	if !released {
		return
	}
	e.releaseOnce.Do(func() { close(e.released) })
	if empty {
		e.emptyOnce.Do(func() { close(e.emptied) })
	}
}

func (e *ends) isReleased() bool {
	select {
	case <-e.released:
		return true
	default:
		return false
	}
}

// Discard removes from the runtime what is left of pods that have finished, though a
// source still has them: their containers, with their logs, and their sandboxes. It
// returns when that is done, or when ctx ends.
func (s *Syncer) Discard(ctx context.Context) error {
	s.mu.Lock()
	var all []*worker
	for _, w := range s.workers {
		if w.ends.isReleased() {
			w.mail.discard()
			all = append(all, w)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, w := range all {
		select {
		case <-w.ends.emptied:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("remove containers of pod %s: %w", w.uid, ctx.Err()))
		}
	}
	return errors.Join(errs...)
}
