package allocation

import (
	"context"
	"maps"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
)

// writePause is how long changes are collected before one write.
const writePause = 100 * time.Millisecond

func (l *Ledger) writeLocked() {
	signal(l.dirty)
}

// Run decides resizes, deferred ones again from time to time, and writes the state until ctx ends. State that has
// not been written by then is written at the end.
func (l *Ledger) Run(ctx context.Context) error {
	var retry, write <-chan time.Time
	wait := firstRetry
	for {
		select {
		case <-ctx.Done():
			l.write()
			return nil
		case <-l.dirty:
			if write == nil {
				write = time.After(writePause)
			}
		case <-write:
			write = nil
			if !l.write() {
				write = time.After(firstRetry)
			}
		case <-l.resizes.queued:
			l.exclusively(func(judging) {})
		case <-l.resizes.deferred:
			if retry == nil {
				wait = firstRetry
				retry = time.After(wait)
			}
		case <-retry:
			retry, wait = nil, laterRetry
			again := false
			l.exclusively(func(j judging) { again = j.retryDeferred() })
			if again {
				retry = time.After(wait)
			}
		}
	}
}

// retryDeferred decides deferred resizes again, and reports whether any is still deferred.
func (j judging) retryDeferred() bool {
	j.retry(triggerPeriod)
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.resizes.deferred: // anyDeferred finds those that were deferred just now, too
	default:
	}
	return j.resizes.anyDeferred()
}

// write writes both files, and reports whether it could.
func (l *Ledger) write() bool {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	states := map[string]map[types.UID]Resources{
		fileAllocated: maps.Clone(l.allocated),
		fileActuated:  maps.Clone(l.actuated),
	}
	l.mu.Unlock()
	ok := true
	for name, pods := range states {
		b, err := encode(pods)
		if err == nil {
			err = checkpoint.Write(filepath.Join(l.cfg.Dir, name), b)
		}
		if err != nil {
			ok = false
			l.cfg.Log.Error("failed to save the allocation of pods", "err", err)
		}
	}
	return ok
}
