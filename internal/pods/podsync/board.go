package podsync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// board holds what other goroutines may read of the workers without waiting for them.
type board struct {
	mu   sync.Mutex
	rows map[types.UID]row
}

// row is what is posted of one worker.
type row struct {
	turning time.Time // since when it is in a turn; zero: it is not
	place   place     // as metrics show it
}

func (b *board) edit(uid types.UID, f func(*row)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows == nil {
		b.rows = map[types.UID]row{}
	}
	r := b.rows[uid]
	f(&r)
	b.rows[uid] = r
}

func (b *board) beginTurn(uid types.UID, now time.Time) {
	b.edit(uid, func(r *row) { r.turning = now })
}
func (b *board) endTurn(uid types.UID)        { b.edit(uid, func(r *row) { r.turning = time.Time{} }) }
func (b *board) post(uid types.UID, at place) { b.edit(uid, func(r *row) { r.place = at }) }

// remove removes the row of a worker that has ended.
func (b *board) remove(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rows, uid)
}

// turning returns since when a worker is in a turn; zero if it is in none.
func (b *board) turning(uid types.UID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows[uid].turning
}

// stuck returns a worker that has been in one turn since before then.
func (b *board) stuck(before time.Time) (uid types.UID, since time.Time, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, r := range b.rows {
		if !r.turning.IsZero() && r.turning.Before(before) {
			return uid, r.turning, true
		}
	}
	return "", time.Time{}, false
}

// places counts pods by the labels of their metric. Those whose worker has had no turn are left out.
func (b *board) places() map[place]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := map[place]int{}
	for _, r := range b.rows {
		if r.place.life != "" {
			n[r.place]++
		}
	}
	return n
}
