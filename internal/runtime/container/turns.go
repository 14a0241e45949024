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

// turnPatience is how long a call may keep its place from others.
const turnPatience = 5 * time.Second

// turns lets calls go to the runtime as many at a time as it serves best (pace).
// A hundred pods started all at once are all late: they share the runtime, and
// the first is ready when the last one is. In turn each is ready as early as it
// can be, and the last one no later.
//
// The place of a call that hangs is lent to another after a while. Nothing runs
// here but when a call comes, ends, or hangs, and while the first calls of all wait:
// nothing is known of the runtime then but what the processors tell.
//
// Lock order: mu only.
type turns struct {
	processors Processors // nil: nobody tells

	mu      sync.Mutex
	pace    pace
	here    int     // calls that hold a place
	area    float64 // of here over time, in seconds: what a call was among
	at      time.Time
	waiting []*turn // who is next comes first
	count   uint64
	look    *look // at the processors; nil: there was none
}

// turn is a call that waits for a place or holds one.
type turn struct {
	verb verb
	rank
	count  uint64 // order of arrival
	placed chan struct{}
	lend   *time.Timer
	lent   bool
	begin  time.Time
	area   float64 // when it began
}

// rank says who comes first.
type rank struct {
	critical   bool // the node or the cluster depends on the pod
	continuing bool // a pod that has begun is finished before another begins
	created    time.Time
}

func rankOf(p *v1.Pod, continuing bool) rank {
	return rank{critical: pod.IsCritical(p), continuing: continuing, created: p.CreationTimestamp.Time}
}

// Calls that end something make room for others. What is left to remove then is
// in nobody's way.
var (
	ending   = rank{continuing: true}
	removing = rank{}
)

func compareTurns(a, b *turn) int {
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	return cmp.Or(first(a.critical, b.critical), first(a.continuing, b.continuing), a.created.Compare(b.created), cmp.Compare(a.count, b.count))
}

func newTurns(processors Processors) *turns {
	return &turns{processors: processors, pace: newPace(), at: time.Now()}
}

// inTurn makes a call when its turn has come.
func inTurn[T any](ctx context.Context, t *turns, v verb, r rank, call func() (T, error)) (T, error) {
	mine, err := t.take(ctx, v, r)
	if err != nil {
		var none T
		return none, err
	}
	done := false
	defer func() { t.give(mine, done) }()
	answer, err := call()
	done = err == nil
	return answer, err
}

// take waits for a place, which is given back with give.
func (t *turns) take(ctx context.Context, v verb, r rank) (*turn, error) {
	t.mu.Lock()
	t.count++
	me := &turn{verb: v, rank: r, count: t.count, placed: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(t.waiting, me, compareTurns)
	t.waiting = slices.Insert(t.waiting, at, me)
	t.placeLocked()
	t.mu.Unlock()
	select {
	case <-me.placed:
		return me, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, me); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // its turn came at the same moment
		t.leaveLocked(me)
	}
	return nil, fmt.Errorf("wait for a turn at the container runtime: %w", ctx.Err())
}

// give ends a call. One that failed says nothing about what calls take.
func (t *turns) give(me *turn, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tickLocked()
	if took := t.at.Sub(me.begin); done && took > 0 {
		among := max(1, (t.area-me.area)/took.Seconds())
		t.pace.learn(me.verb, took, among, len(t.waiting) > 0)
	}
	t.leaveLocked(me)
	t.placeLocked() // the pace may have risen, even if the place was lent
}

// placeLocked gives the free places to those who are next.
func (t *turns) placeLocked() {
	for len(t.waiting) > 0 && t.here < int(t.pace.limit) {
		next := t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.tickLocked()
		t.here++
		next.begin, next.area = t.at, t.area
		next.lend = time.AfterFunc(turnPatience, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.leaveLocked(next)
		})
		close(next.placed)
	}
	if len(t.waiting) > 0 {
		t.lookLocked()
	}
}

// leaveLocked frees a call's place, which is lent already if it took long.
func (t *turns) leaveLocked(me *turn) {
	me.lend.Stop()
	if me.lent {
		return
	}
	me.lent = true
	t.tickLocked()
	t.here--
	t.placeLocked()
}

// tickLocked brings the area up to now.
func (t *turns) tickLocked() {
	now := time.Now()
	t.area += float64(t.here) * now.Sub(t.at).Seconds()
	t.at = now
}
