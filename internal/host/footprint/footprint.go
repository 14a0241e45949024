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
	// calm is how long after the last change nothing of it is under way any more.
	calm = 10 * time.Second
	// tidyPeriod is the longest time between two tidyings. Rare work leaves garbage too, and some nodes are never calm.
	tidyPeriod = 10 * time.Minute

	// Garbage that may pile up before a collection, in percent of what is in use. In a calm time earlier collections
	// cost nothing, and the memory is of use to others. In a busy time more than the default fragments the heap.
	busyGarbage = 100
	calmGarbage = 50
)

// Tidier returns memory of the agent that was used by the start, or by a busy time.
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
	default: // one waiting report says all there is to say
	}
}

// Run tidies in each lull until ctx ends. It is to begin when the start is over.
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

// lulls calls begin when a busy time begins, as with lulls itself, and end when it has ended, and at least once in each
// period. It ends with ctx, or when end fails.
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
		case <-t.stirred: // and more may come
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
