package app

import (
	"context"
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
	err := a.lulls.run(ctx, func() error {
		debug.FreeOSMemory()
		return machine.ForgetProgram()
	})
	if err != nil {
		a.log.Debug("cannot give memory back", "err", err) // it would fail again, and nothing depends on it
	}
	return nil
}

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

// run calls do when a busy time has ended, of which the beginning of run is one, and
// at least once in each period. It ends with ctx, or when do fails.
func (l lulls) run(ctx context.Context, do func() error) error {
	since := time.Now()
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
		if err := do(); err != nil {
			return err
		}
		since = time.Now()
		timer.Reset(tidyPeriod)
		select {
		case <-ctx.Done():
			return nil
		case <-l.stirred:
			timer.Reset(calm)
		case <-timer.C:
			timer.Reset(0)
		}
	}
}
