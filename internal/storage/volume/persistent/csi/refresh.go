package csi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"keelson/internal/node/panics"
)

// minRefresh is the shortest period that drivers may ask for; the API server holds
// them to it.
const minRefresh = 10 * time.Second

// asked are the drivers that registered.
type asked interface {
	Names() []string
	// Refresh asks one what it says of the node, and shows it.
	Refresh(ctx context.Context, name string) error
}

// RefresherConfig holds what a Refresher is built from. Every field is required.
type RefresherConfig struct {
	Drivers asked
	// Object is what the API server says of a driver; nil for nothing. It may wait
	// for the API server.
	Object func(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Log    *slog.Logger
}

// Refresher keeps the number of volumes that a driver says the node can have true:
// drivers that ask for it are asked again now and then, and when a volume could
// not be attached (KEP-4876). Others are asked once, when they register.
type Refresher struct {
	cfg  RefresherConfig
	news chan struct{} // capacity 1: one says all there is to say

	mu   sync.Mutex
	asks map[string]*asking
}

// asking is a driver that is asked again.
type asking struct {
	period time.Duration
	now    chan struct{} // capacity 1
	stop   context.CancelFunc
}

// NewRefresher builds a Refresher. It wants to hear of every change.
func NewRefresher(cfg RefresherConfig) *Refresher {
	return &Refresher{cfg: cfg, news: make(chan struct{}, 1), asks: map[string]*asking{}}
}

// Changed says that drivers came or went, or that their objects changed. It never
// blocks.
func (r *Refresher) Changed() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Exhausted has a driver asked soon, if it wants to be asked at all. It never
// blocks.
func (r *Refresher) Exhausted(driver string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.asks[driver]; a != nil {
		select {
		case a.now <- struct{}{}:
		default:
		}
	}
}

// Run asks until ctx ends.
func (r *Refresher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx) // of those that ask
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.news:
		}
		periods := r.periods(ctx)
		r.mu.Lock()
		for name, a := range r.asks {
			if periods[name] != a.period {
				a.stop()
				delete(r.asks, name)
			}
		}
		for name, period := range periods {
			if r.asks[name] == nil {
				own, stop := context.WithCancel(ctx)
				a := &asking{period: period, now: make(chan struct{}, 1), stop: stop}
				r.asks[name] = a
				wg.Go(func() { defer stop(); r.ask(own, name, a) })
			}
		}
		r.mu.Unlock()
	}
}

// periods are how often registered drivers want to be asked; those that do not are
// not in it.
func (r *Refresher) periods(ctx context.Context) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, name := range r.cfg.Drivers.Names() {
		var d *storagev1.CSIDriver
		err := panics.Try(r.cfg.Log, "CSI allocatable", func() (err error) {
			d, err = r.cfg.Object(ctx, name)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Log.Warn("cannot read CSIDriver", "driver", name, "err", err)
			}
			continue
		}
		if d != nil && d.Spec.NodeAllocatableUpdatePeriodSeconds != nil {
			out[name] = max(time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second, minRefresh)
		}
	}
	return out
}

// ask asks one driver until ctx ends. It hangs on nobody but that driver.
func (r *Refresher) ask(ctx context.Context, name string, a *asking) {
	tick := time.NewTicker(a.period)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.now:
		}
		err := panics.Try(r.cfg.Log, "CSI allocatable", func() error { return r.cfg.Drivers.Refresh(ctx, name) })
		if err != nil && ctx.Err() == nil && !failing {
			r.cfg.Log.Warn("cannot ask CSI driver how many volumes the node can have", "driver", name, "retry", a.period, "err", err)
		}
		failing = err != nil
	}
}
