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
	// maxAnswers is the maximum number of cached answers of each kind.
	maxAnswers = 4096
	// reviewTimeout is the timeout of a review with all its retries.
	reviewTimeout = 30 * time.Second
)

// key identifies a review. It is a keyed hash: tokens are not kept in memory, and clients cannot cause collisions.
type key [sha256.Size]byte

// reviewCache caches answers to reviews, and makes a single review for concurrent requests with the same content.
// Errors are not cached.
type reviewCache[V any] struct {
	secret   []byte
	yes, no  answers[V]
	inFlight singleflight.Group
	seen     *lookups // nil: no metrics
}

func newReviewCache[V any](yesFor, noFor time.Duration) *reviewCache[V] {
	m := &reviewCache[V]{
		secret: make([]byte, sha256.Size),
		yes:    answers[V]{keep: yesFor, held: map[key]answer[V]{}},
		no:     answers[V]{keep: noFor, held: map[key]answer[V]{}},
	}
	_, _ = rand.Read(m.secret) // never fails
	return m
}

// get returns the cached answer, or makes the review. The review continues when ctx ends, because others may wait for
// it.
func (m *reviewCache[V]) get(
	ctx context.Context, question []byte, ask func(context.Context) (v V, yes bool, err error),
) (V, error) {
	mac := hmac.New(sha256.New, m.secret)
	mac.Write(question)
	k := key(mac.Sum(nil))
	start := time.Now()
	v, ok := m.lookup(k)
	defer func() { m.seen.observeLookup(ok, time.Since(start)) }()
	if ok {
		return v, nil
	}
	defer m.seen.during(statusBlocked)()
	answered := m.inFlight.DoChan(string(k[:]), func() (any, error) {
		if v, ok := m.lookup(k); ok {
			return v, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		defer m.seen.during(statusInFlight)()
		v, yes, err := ask(ctx)
		m.seen.countFetch(err)
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

func (m *reviewCache[V]) lookup(k key) (V, bool) {
	if v, ok := m.yes.get(k); ok {
		return v, true
	}
	return m.no.get(k)
}

// answers is a cache of at most maxAnswers answers with a time to live.
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
	for k := range a.held { // in random order
		if len(a.held) < maxAnswers {
			break
		}
		delete(a.held, k)
	}
	a.held[k] = answer[V]{v, now.Add(a.keep)}
}
