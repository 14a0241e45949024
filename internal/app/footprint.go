package app

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"keelson/internal/resources/machine"
)

const (
	// calm is how long after the last change of a pod nothing of it is under way any
	// more.
	calm = 10 * time.Second
	// tidyPeriod is the longest time between two tidyings. Rare work leaves traces
	// too, and on some nodes there is always something going on.
	tidyPeriod = 10 * time.Minute

	// What may pile up as garbage before it is collected, in percent of what is in
	// use. In a calm time there is so little of it that to collect earlier costs
	// nothing, and what may pile up is memory that nobody else can use. More than
	// the language's own measure in a busy time would leave the heap full of holes.
	busyGarbage = 100
	calmGarbage = 50
)

// tidy gives back the memory that only the start needed, or a time in which much
// came and went: a node has better uses for it.
func (a *agent) tidy(ctx context.Context) error {
	for _, news := range []<-chan struct{}{a.observed.Synced(), a.desired.ReadyC()} {
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
	garbage := collectAt
	if os.Getenv("GOGC") != "" { // whoever has set it knows better
		garbage = func(int) {}
	}
	err := a.lulls.run(ctx, func() { garbage(busyGarbage) }, func() error {
		garbage(calmGarbage)
		debug.FreeOSMemory()
		return machine.ForgetProgram()
	})
	if err != nil {
		a.log.Debug("cannot give memory back", "err", err) // it would fail again, and nothing depends on it
	}
	return nil
}

func collectAt(percent int) { debug.SetGCPercent(percent) }

// lulls tells busy times from calm ones. Where nothing happens it does nothing.
type lulls struct{ stirred chan struct{} } // capacity 1: something has happened

func newLulls() lulls { return lulls{make(chan struct{}, 1)} }

// stir says that something happens. It does not block.
func (l lulls) stir() {
	select {
	case l.stirred <- struct{}{}:
	default:
	}
}

// run calls begin when a busy time begins, as with run itself, and end when it has
// ended, and at least once in each period. It ends with ctx, or when end fails.
func (l lulls) run(ctx context.Context, begin func(), end func() error) error {
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
		case <-l.stirred: // and more may come
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
		case <-l.stirred:
			begin()
			timer.Reset(calm)
		case <-timer.C:
			timer.Reset(0)
		}
	}
}
