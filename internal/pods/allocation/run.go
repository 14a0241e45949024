package allocation

import (
	"context"
	"maps"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/checkpoint"
)

// writePause gathers what a burst of pods changes into one write.
const writePause = 100 * time.Millisecond

func (l *Ledger) writeLocked() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// Run writes the state and asks again for deferred resizes until ctx ends. What is
// still to be written then is written.
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
		case <-l.defers:
			if retry == nil {
				wait = firstRetry
				retry = time.After(wait)
			}
		case <-retry:
			retry, wait = nil, laterRetry
			if l.askAgain() {
				retry = time.After(wait)
			}
		}
	}
}

// askAgain asks again by the clock, and reports whether any resize is still
// deferred.
func (l *Ledger) askAgain() bool {
	l.mu.Lock()
	woken := l.retryLocked(triggerPeriod)
	waits := false
	for _, w := range l.wishes {
		waits = waits || w.reason == v1.PodReasonDeferred
	}
	select {
	case <-l.defers: // what was deferred just now is waited for already
	default:
	}
	l.mu.Unlock()
	l.wake(woken)
	return waits
}

// write writes both files, and reports whether it could.
func (l *Ledger) write() bool {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	states := map[string]map[types.UID]Resources{fileGranted: maps.Clone(l.granted), fileInForce: maps.Clone(l.force)}
	l.mu.Unlock()
	ok := true
	for name, pods := range states {
		b, err := encode(pods)
		if err == nil {
			err = checkpoint.Write(filepath.Join(l.cfg.Dir, name), b)
		}
		if err != nil {
			ok = false
			l.cfg.Log.Error("cannot write down what pods were granted", "err", err)
		}
	}
	return ok
}
