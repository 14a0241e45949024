package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// slotTimeout is how long a call may occupy its slot while others wait.
const slotTimeout = 5 * time.Second

// callQueue limits the number of concurrent calls to the runtime to what it serves best (pace). If a
// hundred pods start at the same time without a limit, they share the runtime and all become ready
// when the last one does. With a limit each becomes ready as early as possible, and the last one no
// later.
//
// A call that hangs gives up its slot after slotTimeout. There is no goroutine of its own: code
// runs when a call arrives, ends or hangs, and during the idle probe.
//
// Lock order: mu only.
type callQueue struct {
	processors Processors // may be nil

	mu      sync.Mutex
	pace    pace
	active  int     // active calls, those that occupy a slot
	area    float64 // integral of active over time, in seconds; gives the mean concurrency of a call
	at      time.Time
	waiting []*queuedCall // in order of rank
	count   uint64
	probe   *idleProbe // nil: not started
}

// queuedCall is a call that waits for a slot or occupies one.
type queuedCall struct {
	verb verb
	rank
	count    uint64 // order of arrival
	granted  chan struct{}
	timer    *time.Timer
	released bool
	begin    time.Time
	area     float64 // at the start of the call
}

// rank is the priority of a call.
type rank struct {
	critical   bool // of a critical pod
	continuing bool // pods whose start has begun are finished first
	created    time.Time
}

func rankOf(p *v1.Pod, continuing bool) rank {
	return rank{critical: pod.IsCritical(p), continuing: continuing, created: p.CreationTimestamp.Time}
}

// Calls that stop something free resources for other calls. The removal that follows is not urgent.
var (
	stopRank   = rank{continuing: true}
	removeRank = rank{}
)

func compareCalls(a, b *queuedCall) int {
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	return cmp.Or(first(a.critical, b.critical), first(a.continuing, b.continuing), a.created.Compare(b.created),
		cmp.Compare(a.count, b.count))
}

func newCallQueue(processors Processors) *callQueue {
	return &callQueue{processors: processors, pace: newPace(), at: time.Now()}
}

// inQueue runs a call when a slot is available.
func inQueue[T any](ctx context.Context, q *callQueue, v verb, r rank, call func() (T, error)) (T, error) {
	mine, err := q.acquire(ctx, v, r)
	if err != nil {
		var none T
		return none, err
	}
	done := false
	defer func() { q.release(mine, done) }()
	answer, err := call()
	done = err == nil
	return answer, err
}

// acquire waits for a slot, to be released with release.
func (q *callQueue) acquire(ctx context.Context, v verb, r rank) (*queuedCall, error) {
	q.mu.Lock()
	q.count++
	me := &queuedCall{verb: v, rank: r, count: q.count, granted: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(q.waiting, me, compareCalls)
	q.waiting = slices.Insert(q.waiting, at, me)
	q.grantLocked()
	q.mu.Unlock()
	select {
	case <-me.granted:
		return me, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, me); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else { // the slot was granted at the same moment
		q.releaseLocked(me)
	}
	return nil, fmt.Errorf("wait for a slot at the container runtime: %w", ctx.Err())
}

// release ends a call. A failed call is not measured.
func (q *callQueue) release(me *queuedCall, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accountLocked()
	if took := q.at.Sub(me.begin); done && took > 0 {
		among := max(1, (q.area-me.area)/took.Seconds())
		q.pace.learn(me.verb, took, among, len(q.waiting) > 0)
	}
	q.releaseLocked(me)
	q.grantLocked() // the limit may have risen, even if the slot was released before
}

// grantLocked grants the free slots in order of rank.
func (q *callQueue) grantLocked() {
	for len(q.waiting) > 0 && q.active < int(q.pace.limit) {
		next := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.accountLocked()
		q.active++
		next.begin, next.area = q.at, q.area
		next.timer = time.AfterFunc(slotTimeout, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.releaseLocked(next)
		})
		close(next.granted)
	}
	if len(q.waiting) > 0 {
		q.probeIdleLocked()
	}
}

// releaseLocked releases a call's slot, unless it was released because the call took too long.
func (q *callQueue) releaseLocked(me *queuedCall) {
	me.timer.Stop()
	if me.released {
		return
	}
	me.released = true
	q.accountLocked()
	q.active--
	q.grantLocked()
}

// accountLocked updates the integral.
func (q *callQueue) accountLocked() {
	now := time.Now()
	q.area += float64(q.active) * now.Sub(q.at).Seconds()
	q.at = now
}
