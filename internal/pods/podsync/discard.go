package podsync

import (
	"context"
	"errors"
	"fmt"
)

// Discard removes from the runtime what is left of pods that have finished, though a
// source still has them: their containers, with their logs, and their sandboxes. It
// returns when that is done, or when ctx ends.
func (s *Syncer) Discard(ctx context.Context) error {
	s.mu.Lock()
	var all []*worker
	for _, w := range s.workers {
		if w.isReleased() {
			all = append(all, w)
		}
	}
	s.mu.Unlock()
	for _, w := range all {
		w.discard.Store(true)
		w.poke()
	}
	var errs []error
	for _, w := range all {
		select {
		case <-w.emptied:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("remove what is left of pod %s: %w", w.uid, ctx.Err()))
		}
	}
	return errors.Join(errs...)
}

func (w *worker) isReleased() bool {
	select {
	case <-w.released:
		return true
	default:
		return false
	}
}

// noteProgress tells those who wait for the pod's end how far it is.
func (w *worker) noteProgress(finished, empty bool) {
	if finished {
		w.releaseOnce.Do(func() { close(w.released) })
		if empty {
			w.emptyOnce.Do(func() { close(w.emptied) })
		}
	}
}
