package footprint

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"keelson/internal/host/machine"
)

const (
	// calm is the time without a change after which the agent counts as idle.
	calm = 10 * time.Second
	// tidyPeriod is the maximum time between two releases of memory. Rare work leaves garbage, too, and on some nodes
	// the agent is never idle.
	tidyPeriod = 10 * time.Minute

	// The garbage collection targets (GOGC): the amount of garbage that starts a collection, in percent of the live
	// heap. While the agent is idle, earlier collections are cheap, and other processes can use the memory. While it
	// is busy, a value above the default would fragment the heap.
	busyGarbage = 100
	calmGarbage = 50
)

// Tidier returns memory that the agent used during the start or another busy period.
type Tidier struct {
	log     *slog.Logger
	stirred chan struct{} // capacity 1: something has changed
}

// New makes a Tidier. Nothing happens before Run.
func New(log *slog.Logger) *Tidier { return &Tidier{log: log, stirred: make(chan struct{}, 1)} }

// Stir reports a change. It never blocks.
func (t *Tidier) Stir() {
	select {
	case t.stirred <- struct{}{}:
	default: // one pending report is enough
	}
}

// Run releases memory in each idle period until ctx ends. It is started when the start of the agent is complete.
func (t *Tidier) Run(ctx context.Context) error {
	garbage := func(percent int) { debug.SetGCPercent(percent) }
	if os.Getenv("GOGC") != "" { // set by the operator
		garbage = func(int) {}
	}
	err := t.lulls(ctx, func() { garbage(busyGarbage) }, func() error {
		garbage(calmGarbage)
		debug.FreeOSMemory()
		return machine.ForgetProgram()
	})
	if err != nil {
		t.log.Debug("failed to return memory", "err", err) // it would fail again, and nothing depends on it
	}
	return nil
}

// lulls calls begin when a busy period begins, which the call of lulls does, too. It calls end when the period is over,
// and at least once in each tidyPeriod. It returns when ctx ends or end fails.
func (t *Tidier) lulls(ctx context.Context, begin func(), end func() error) error {
	since := time.Now()
	begin()
	timer := time.NewTimer(calm)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		select {
		case <-t.stirred: // more changes may follow
			if time.Since(since) < tidyPeriod {
				timer.Reset(calm)
				continue
			}
		default:
		}
		if err := end(); err != nil {
			return err
		}
		since = time.Now()
		timer.Reset(tidyPeriod)
		select {
		case <-ctx.Done():
			return nil
		case <-t.stirred:
			begin()
			timer.Reset(calm)
		case <-timer.C:
			timer.Reset(0)
		}
	}
}
