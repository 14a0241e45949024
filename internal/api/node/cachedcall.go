package node

import (
	"context"
	"errors"
	"time"
)

// responseTimeout is how long the status loop waits for a response of the runtime. A runtime that hangs must not block
// the status, which also reports that.
const responseTimeout = 2 * time.Second

var errNoResponse = errors.New("no response yet")

// cachedCall is a call of the runtime that is made periodically. It belongs to the status loop.
type cachedCall[T any] struct {
	answer  T // the last response
	at      time.Time
	awaited chan reply[T] // nil: no call is pending
	overdue bool          // the pending call has exceeded responseTimeout
}

type reply[T any] struct {
	answer T
	err    error
}

// get makes the call if the last response is older than every, and waits for it up to responseTimeout. If the response
// comes later, late is called, and the next call of get stores it. The error is why there is no new response. do must
// return when ctx ends.
func (q *cachedCall[T]) get(
	ctx context.Context, now time.Time, every time.Duration, do func() (T, error), late func(),
) error {
	if q.awaited == nil {
		if !q.at.IsZero() && now.Sub(q.at) < every {
			return nil
		}
		awaited := make(chan reply[T], 1)
		q.awaited = awaited
		go func() {
			begun := time.Now()
			a, err := do()
			awaited <- reply[T]{a, err}
			if time.Since(begun) >= responseTimeout {
				late()
			}
		}()
	}
	if !q.overdue {
		soon := time.NewTimer(responseTimeout)
		defer soon.Stop()
		select {
		case r := <-q.awaited:
			return q.take(r, now)
		case <-ctx.Done():
			return ctx.Err()
		case <-soon.C:
			q.overdue = true
		}
	}
	select {
	case r := <-q.awaited:
		return q.take(r, now)
	default:
		return errNoResponse
	}
}

func (q *cachedCall[T]) take(r reply[T], now time.Time) error {
	q.awaited, q.overdue = nil, false
	if r.err == nil {
		q.answer, q.at = r.answer, now
	}
	return r.err
}

// finish waits for a pending call.
func (q *cachedCall[T]) finish() {
	if q.awaited != nil {
		<-q.awaited
	}
}
