package csi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"keelson/internal/pods/panics"
)

// minRefresh is the minimum period, which the API server enforces.
const minRefresh = 10 * time.Second

// registeredDrivers are the registered drivers.
type registeredDrivers interface {
	Names() []string
	// Refresh calls NodeGetInfo of a driver and publishes the result.
	Refresh(ctx context.Context, name string) error
}

// RefresherConfig holds what a Refresher is built from. Every field is required.
type RefresherConfig struct {
	Drivers registeredDrivers
	// Object returns the CSIDriver object, nil if there is none. It may wait for the API server.
	Object func(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Log    *slog.Logger
}

// Refresher keeps the volume limits in the CSINode up to date. It calls NodeGetInfo of drivers with
// nodeAllocatableUpdatePeriodSeconds periodically, and when a volume could not be attached
// (KEP-4876). For other drivers it is called at registration only.
type Refresher struct {
	cfg  RefresherConfig
	news chan struct{} // capacity 1: one pending change is enough

	mu   sync.Mutex
	asks map[string]*refresh
}

// refresh is a driver that is called periodically.
type refresh struct {
	period time.Duration
	now    chan struct{} // capacity 1
	stop   context.CancelFunc
}

// NewRefresher makes a Refresher. Changed must be called for every change.
func NewRefresher(cfg RefresherConfig) *Refresher {
	return &Refresher{cfg: cfg, news: make(chan struct{}, 1), asks: map[string]*refresh{}}
}

// Changed is called when drivers have registered or deregistered, or CSIDriver objects changed. It
// never blocks.
func (r *Refresher) Changed() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Exhausted requests a call of the driver, if it is called periodically. It never blocks.
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

// Run refreshes until ctx ends.
func (r *Refresher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx) // for the goroutines of the drivers
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
				a := &refresh{period: period, now: make(chan struct{}, 1), stop: stop}
				r.asks[name] = a
				wg.Go(func() { defer stop(); r.ask(own, name, a) })
			}
		}
		r.mu.Unlock()
	}
}

// periods returns the periods of the registered drivers that have one.
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
				r.cfg.Log.Warn("failed to read CSIDriver", "driver", name, "err", err)
			}
			continue
		}
		if d != nil && d.Spec.NodeAllocatableUpdatePeriodSeconds != nil {
			out[name] = max(time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second, minRefresh)
		}
	}
	return out
}

// ask calls one driver until ctx ends. A driver that hangs delays only itself.
func (r *Refresher) ask(ctx context.Context, name string, a *refresh) {
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
			r.cfg.Log.Warn("failed to refresh volume limit of CSI driver", "driver", name, "retryAfter", a.period,
				"err", err)
		}
		failing = err != nil
	}
}
