package node

import (
	"context"
	"errors"
	"time"
)

// answerSoon is how long a status waits for an answer of the runtime. One that hangs
// must not keep the rest of the status, which tells of that among other things.
const answerSoon = 2 * time.Second

var errNoAnswer = errors.New("no answer yet")

// question is something that the runtime is asked every now and then. It belongs to
// the status loop.
type question[T any] struct {
	answer  T // the last one
	at      time.Time
	awaited chan reply[T] // nil: nothing is asked
	overdue bool          // the answer did not come soon
}

type reply[T any] struct {
	answer T
	err    error
}

// ask asks if the last answer is older than every, and takes in the answer if it comes
// soon; else late is called when it has come, and the next call takes it in. The error
// is why there is no new one. do ends with ctx.
func (q *question[T]) ask(ctx context.Context, now time.Time, every time.Duration, do func() (T, error), late func()) error {
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
			if time.Since(begun) >= answerSoon {
				late()
			}
		}()
	}
	if !q.overdue {
		soon := time.NewTimer(answerSoon)
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
		return errNoAnswer
	}
}

func (q *question[T]) take(r reply[T], now time.Time) error {
	q.awaited, q.overdue = nil, false
	if r.err == nil {
		q.answer, q.at = r.answer, now
	}
	return r.err
}

// finish waits for the answer to what is still asked.
func (q *question[T]) finish() {
	if q.awaited != nil {
		<-q.awaited
	}
}
