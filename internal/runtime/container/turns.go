package container

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	gometrics "runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

const (
	// turnPatience is how long a call may keep its turn from others.
	turnPatience = 5 * time.Second
	// turnPeriod is how often it is looked for idle CPUs while calls wait.
	turnPeriod = 10 * time.Millisecond
)

// turns lets calls that start things go to the runtime a few at a time. Started
// all at once, a hundred pods are all late: they share the CPUs, and the first is
// ready when the last one is. In turn, each is ready as early as it can be and
// the last one no later.
//
// What is scarce are the CPUs. While some are idle, more calls than there are
// turns are let go: they wait for something else, and so would others behind
// them. A call that hangs gives its turn back after a while.
//
// Lock order: mu only; it is not held while the machine is looked at.
type turns struct {
	slots int         // calls under way that need no idle CPU
	idle  func() bool // reports whether a CPU has nothing to do; asked by one at a time
	extra int         // calls let go when a look finds one; twice as many at each further one

	mu      sync.Mutex
	taken   int
	waiting []*turn // who is next comes first
	count   uint64
	looking bool
	more    int // calls to be let go if the next look finds an idle CPU
}

// turn is a call that waits.
type turn struct {
	rank
	count uint64 // order of arrival
	yours chan struct{}
}

// rank says who comes first.
type rank struct {
	critical   bool // the node or the cluster depends on the pod
	continuing bool // a pod that has begun is finished before another begins
	created    time.Time
}

func rankOf(p *v1.Pod, continuing bool) rank {
	return rank{critical: isCritical(p), continuing: continuing, created: p.CreationTimestamp.Time}
}

// isCritical: a static pod, or one of the two highest priority classes.
func isCritical(p *v1.Pod) bool {
	const systemCritical = 2_000_000_000
	return pod.IsStatic(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical
}

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

func newTurns() *turns {
	cpus := goruntime.NumCPU()
	return &turns{slots: max(4, 2*cpus), extra: cpus, idle: idleCPU(cpus)}
}

// take waits for a turn. done gives it back and may be called more than once.
func (t *turns) take(ctx context.Context, r rank) (done func(), err error) {
	t.mu.Lock()
	if t.taken < t.slots && len(t.waiting) == 0 {
		t.taken++
		t.mu.Unlock()
		return t.lease(), nil
	}
	t.count++
	me := &turn{rank: r, count: t.count, yours: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(t.waiting, me, compareTurns)
	t.waiting = slices.Insert(t.waiting, at, me)
	if !t.looking {
		t.looking, t.more = true, t.extra
		time.AfterFunc(turnPeriod, t.look)
	}
	t.mu.Unlock()
	select {
	case <-me.yours:
		return t.lease(), nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, me); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // its turn came at the same moment
		t.taken--
		t.grantLocked(0)
	}
	return nil, fmt.Errorf("wait for a turn at the container runtime: %w", ctx.Err())
}

// inTurn makes a call when its turn has come.
func inTurn[T any](ctx context.Context, t *turns, r rank, call func() (T, error)) (T, error) {
	done, err := t.take(ctx, r)
	if err != nil {
		var none T
		return none, err
	}
	defer done()
	return call()
}

// lease makes sure that a turn is given back once, and in time.
func (t *turns) lease() (done func()) {
	var once sync.Once
	back := func() {
		once.Do(func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.taken--
			t.grantLocked(0)
		})
	}
	timer := time.AfterFunc(turnPatience, back)
	return func() {
		timer.Stop()
		back()
	}
}

// grantLocked lets go who is next: as many as there are free turns, and extra
// ones beside.
func (t *turns) grantLocked(extra int) {
	for len(t.waiting) > 0 && (t.taken < t.slots || extra > 0) {
		if t.taken >= t.slots {
			extra--
		}
		t.taken++
		close(t.waiting[0].yours)
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
}

// look lets more calls go while a CPU is idle, for as long as some wait.
func (t *turns) look() {
	idle := t.idle()
	t.mu.Lock()
	defer t.mu.Unlock()
	if idle {
		t.grantLocked(t.more)
		t.more *= 2
	} else {
		t.more = t.extra
	}
	if t.looking = len(t.waiting) > 0; t.looking {
		time.AfterFunc(turnPeriod, t.look)
	}
}

// idleCPU returns a function that reports whether the rest of the machine leaves
// a CPU idle: whether fewer threads can run there than there are CPUs. What this
// process has to do does not count, for calls of the runtime are what is limited.
func idleCPU(cpus int) func() bool {
	open := sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/loadavg") })
	ours := []gometrics.Sample{{Name: "/sched/goroutines/running:goroutines"}}
	var line [64]byte
	return func() bool {
		f, err := open()
		if err != nil {
			return false // as if it were busy
		}
		n, err := f.ReadAt(line[:], 0)
		if err != nil && err != io.EOF {
			return false
		}
		all, ok := runnable(line[:n])
		gometrics.Read(ours)
		if ours[0].Value.Kind() != gometrics.KindUint64 {
			return false
		}
		return ok && all-int(ours[0].Value.Uint64()) < cpus
	}
}

// runnable reads the number of threads that can run from a line such as
// "0.20 0.18 0.12 3/80 11206".
func runnable(loadavg []byte) (int, bool) {
	f := bytes.Fields(loadavg)
	if len(f) < 4 {
		return 0, false
	}
	text, _, ok := bytes.Cut(f[3], []byte("/"))
	n, err := strconv.Atoi(string(text))
	return n, ok && err == nil
}
