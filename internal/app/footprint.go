package app

import (
	"context"
	"runtime/debug"
	"time"

	"keelson/internal/resources/machine"
)

const (
	// calm is how long after the start nothing of the start is under way any more.
	calm = 10 * time.Second
	// tidyPeriod is the time between two tidyings. Rare work leaves traces too.
	tidyPeriod = 10 * time.Minute
)

// tidy gives back the memory that only the start needed, and later what other
// rare work did: a node has better uses for it.
func (a *agent) tidy(ctx context.Context) error {
	for _, news := range []<-chan struct{}{a.observed.Synced(), a.desired.ReadyC()} {
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
	timer := time.NewTimer(calm)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		debug.FreeOSMemory()
		if err := machine.ForgetProgram(); err != nil {
			a.log.Debug("cannot give memory back", "err", err)
			return nil // it would fail again, and nothing depends on it
		}
		timer.Reset(tidyPeriod)
	}
}
