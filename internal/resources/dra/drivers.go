package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"keelson/internal/node/panics"
)

// offers are what drivers offer of this node at the API server.
type offers interface {
	// Wipe takes away what a driver offers; empty: what all do. A server that knows no
	// such offers is no error.
	Wipe(ctx context.Context, driver string) error
}

// DriversConfig holds what Drivers are built from. Fields are required unless their
// comment says otherwise.
type DriversConfig struct {
	Offers offers                                                   // nil: standalone
	Dial   func(ctx context.Context, path string) (net.Conn, error) // nil: a socket of the file system
	// OnDriver is called with a driver that can be called now. It must not block.
	OnDriver func(name string)
	Health   *Health // nil: nobody wants to know how well devices are
	Log      *slog.Logger
}

// Drivers are the drivers that registered. It is the handler for plugins of the type
// DRAPlugin. A driver may be there several times, while one version of it follows
// another.
type Drivers struct {
	cfg     DriversConfig
	metrics metrics
	wg      sync.WaitGroup

	mu     sync.Mutex
	life   context.Context // Run's; nil before it
	byName map[string][]*instance
	wipes  map[string]context.CancelFunc // under way, by driver
}

// instance is one that registered.
type instance struct {
	name, endpoint string
	client         drav1.DRAPluginClient
	prefix         string // of the methods' names, in metrics
	conn           *grpc.ClientConn
	health         bool
	stop           context.CancelFunc
	done           chan struct{} // closed when nobody follows it any more

	up bool // guarded by Drivers.mu
}

// NewDrivers makes an empty table.
func NewDrivers(cfg DriversConfig) *Drivers {
	return &Drivers{cfg: cfg, metrics: newMetrics(), byName: map[string][]*instance{}, wipes: map[string]context.CancelFunc{}}
}

// Run takes away what drivers offered that were there before the agent, and what
// those offer that leave, until ctx ends.
func (d *Drivers) Run(ctx context.Context) error {
	d.mu.Lock()
	d.life = ctx
	d.wipeLocked("", 0)
	for name, list := range d.byName { // they came first
		for _, i := range list {
			d.followLocked(i)
		}
		d.settleLocked(name)
	}
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	d.life = nil // nobody is followed any more
	d.mu.Unlock()
	d.wg.Wait()
	return d.hangUp()
}

// hangUp closes what leads to the drivers.
func (d *Drivers) hangUp() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, list := range d.byName {
		for _, i := range list {
			errs = append(errs, i.conn.Close())
		}
	}
	clear(d.byName)
	return errors.Join(errs...)
}

// Validate judges a driver that wants to register.
func (d *Drivers) Validate(name, _ string, services []string) error {
	if _, err := judge(name, services); err != nil {
		return fmt.Errorf("invalid versions of plugin %s: %w", name, err)
	}
	return nil
}

// Register takes a driver.
func (d *Drivers) Register(_ context.Context, name, endpoint string, services []string) error {
	service, err := judge(name, services)
	if err != nil {
		return err
	}
	dial := d.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, path string) (net.Conn, error) {
			var n net.Dialer
			return n.DialContext(ctx, "unix", path)
		}
	}
	wait := backoff.DefaultConfig
	wait.MaxDelay = maxReconnect
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0), grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: maxReconnect}))
	if err != nil {
		return fmt.Errorf("dial DRA driver %s: %w", name, err)
	}
	i := &instance{name: name, endpoint: endpoint, conn: conn, health: tellsHealth(services), stop: func() {}, client: drav1.NewDRAPluginClient(conn), prefix: "/" + drav1.DRAPlugin_ServiceDesc.ServiceName + "/"}
	if service == serviceV1Beta1 {
		i.prefix = "/" + drav1beta1.DRAPlugin_ServiceDesc.ServiceName + "/"
		i.client = drav1beta1.V1Beta1ClientWrapper{DRAPluginClient: drav1beta1.NewDRAPluginClient(conn)}
	}
	if !d.add(i) {
		conn.Close()
		return fmt.Errorf("endpoint %s already registered for DRA driver %s", endpoint, name)
	}
	d.cfg.Log.Info("DRA driver registered", "driver", name, "endpoint", endpoint, "service", service)
	d.cfg.OnDriver(name)
	return nil
}

// add takes a driver, if there is none at its endpoint.
func (d *Drivers) add(i *instance) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.byName[i.name], func(o *instance) bool { return o.endpoint == i.endpoint }) {
		return false
	}
	d.byName[i.name] = append(d.byName[i.name], i)
	if d.life != nil {
		d.followLocked(i)
	}
	d.settleLocked(i.name)
	return true
}

// Deregister takes a driver out that was reached at the endpoint.
func (d *Drivers) Deregister(_ context.Context, name, endpoint string) error {
	d.mu.Lock()
	at := slices.IndexFunc(d.byName[name], func(o *instance) bool { return o.endpoint == endpoint })
	if at < 0 {
		d.mu.Unlock()
		return nil
	}
	i := d.byName[name][at]
	if d.byName[name] = slices.Delete(d.byName[name], at, at+1); len(d.byName[name]) == 0 {
		delete(d.byName, name)
	}
	d.settleLocked(name)
	stop, done := i.stop, i.done
	d.mu.Unlock()
	stop()
	if done != nil {
		<-done
	}
	if err := i.conn.Close(); err != nil {
		return fmt.Errorf("leave DRA driver %s: %w", name, err)
	}
	d.cfg.Log.Info("DRA driver left", "driver", name, "endpoint", endpoint)
	return nil
}

// followLocked keeps in step with whether a driver can be reached.
func (d *Drivers) followLocked(i *instance) {
	ctx, stop := context.WithCancel(d.life)
	i.stop, i.done = stop, make(chan struct{})
	var wg sync.WaitGroup
	if i.health && d.cfg.Health != nil {
		wg.Go(func() { d.cfg.Health.follow(ctx, i.name, i.conn) })
	}
	wg.Go(func() { d.follow(ctx, i) })
	d.wg.Go(func() {
		defer close(i.done)
		defer stop()
		wg.Wait()
	})
}

// follow tracks the state of the connection to a driver until ctx ends.
func (d *Drivers) follow(ctx context.Context, i *instance) {
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		err := panics.Try(d.cfg.Log, part, func() error {
			d.keepUp(ctx, i)
			return nil
		})
		if err == nil || !sleep(ctx, pause) {
			return
		}
	}
}

func (d *Drivers) keepUp(ctx context.Context, i *instance) {
	i.conn.Connect()
	for {
		state := i.conn.GetState()
		if d.note(i, state) {
			d.cfg.OnDriver(i.name)
		}
		if state == connectivity.Idle {
			i.conn.Connect()
		}
		if !i.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// note stores the state of the connection to a driver. It reports whether the driver has just become reachable.
func (d *Drivers) note(i *instance, state connectivity.State) (came bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	came = !i.up && state == connectivity.Ready
	i.up = state == connectivity.Ready
	d.settleLocked(i.name)
	return came
}

// settleLocked has what a driver offers taken away if it cannot be reached, and left
// if it can.
func (d *Drivers) settleLocked(name string) {
	up := slices.ContainsFunc(d.byName[name], func(i *instance) bool { return i.up })
	stop, wiping := d.wipes[name]
	switch {
	case up && wiping:
		stop()
		delete(d.wipes, name)
	case !up && !wiping:
		d.wipeLocked(name, wipeAfter)
	}
}

// wipeLocked takes away what a driver offers after a while, as many attempts as that
// takes.
func (d *Drivers) wipeLocked(name string, after time.Duration) {
	if d.cfg.Offers == nil || d.life == nil {
		return
	}
	ctx, stop := context.WithCancel(d.life)
	d.wipes[name] = stop
	d.wg.Go(func() {
		defer stop()
		for delay, pause := after, minRetry; ; delay, pause = pause, min(2*pause, maxWipeRetry) {
			if !sleep(ctx, delay) {
				return
			}
			err := panics.Try(d.cfg.Log, part, func() error { return d.cfg.Offers.Wipe(ctx, name) })
			if err == nil || ctx.Err() != nil {
				break
			}
			d.cfg.Log.Warn("cannot take away what DRA drivers offered", "driver", cmp.Or(name, "all"), "again_in", pause, "err", err)
		}
		if ctx.Err() == nil {
			d.cfg.Log.Info("what DRA drivers offered is taken away", "driver", cmp.Or(name, "all"))
		}
	})
}

// sleep waits. It reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// find is the driver to call: of those that can be reached the latest, else the
// latest of all.
func (d *Drivers) find(name string) (*instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.byName[name]
	if len(list) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	for _, i := range slices.Backward(list) {
		if i.up {
			return i, nil
		}
	}
	return list[len(list)-1], nil
}
