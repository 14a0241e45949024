package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// maxAnswers is how many answers of each kind are remembered.
	maxAnswers = 4096
	// askTimeout is for one question with all its repetitions.
	askTimeout = 30 * time.Second
)

// key stands for a question. It is a keyed hash: tokens are not kept in memory
// and nobody outside can make two questions collide.
type key [sha256.Size]byte

// memo remembers answers to questions, and asks once where several want to know
// the same thing at the same time. Errors are not remembered.
type memo[V any] struct {
	secret  []byte
	yes, no answers[V]
	asking  singleflight.Group
	seen    *lookups // nil: nobody counts
}

func newMemo[V any](yesFor, noFor time.Duration) *memo[V] {
	m := &memo[V]{
		secret: make([]byte, sha256.Size),
		yes:    answers[V]{keep: yesFor, held: map[key]answer[V]{}},
		no:     answers[V]{keep: noFor, held: map[key]answer[V]{}},
	}
	_, _ = rand.Read(m.secret) // never fails, as its documentation says
	return m
}

// get returns the remembered answer to question, or asks. The asking goes on
// when ctx ends, since others may be waiting for it.
func (m *memo[V]) get(ctx context.Context, question []byte, ask func(context.Context) (v V, yes bool, err error)) (V, error) {
	mac := hmac.New(sha256.New, m.secret)
	mac.Write(question)
	k := key(mac.Sum(nil))
	start := time.Now()
	v, ok := m.known(k)
	defer func() { m.seen.asked(ok, time.Since(start)) }()
	if ok {
		return v, nil
	}
	defer m.seen.during(statusBlocked)()
	answered := m.asking.DoChan(string(k[:]), func() (any, error) {
		if v, ok := m.known(k); ok {
			return v, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		defer m.seen.during(statusInFlight)()
		v, yes, err := ask(ctx)
		m.seen.fetched(err)
		if err != nil {
			return nil, err
		}
		if yes {
			m.yes.put(k, v)
		} else {
			m.no.put(k, v)
		}
		return v, nil
	})
	var zero V
	select {
	case a := <-answered:
		if a.Err != nil {
			return zero, a.Err
		}
		return a.Val.(V), nil
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

func (m *memo[V]) known(k key) (V, bool) {
	if v, ok := m.yes.get(k); ok {
		return v, true
	}
	return m.no.get(k)
}

// answers are remembered for a time each, and at most maxAnswers of them.
type answers[V any] struct {
	keep time.Duration

	mu   sync.Mutex
	held map[key]answer[V]
}

type answer[V any] struct {
	v     V
	until time.Time
}

func (a *answers[V]) get(k key) (V, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	got, ok := a.held[k]
	if !ok || !time.Now().Before(got.until) {
		delete(a.held, k)
		var zero V
		return zero, false
	}
	return got.v, true
}

func (a *answers[V]) put(k key, v V) {
	if a.keep <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.held) >= maxAnswers {
		for k, old := range a.held {
			if !now.Before(old.until) {
				delete(a.held, k)
			}
		}
	}
	for k := range a.held { // any one will do: the map is in no order
		if len(a.held) < maxAnswers {
			break
		}
		delete(a.held, k)
	}
	a.held[k] = answer[V]{v, now.Add(a.keep)}
}
