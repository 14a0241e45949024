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

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/reconcile"
)

// resourceSlices are the ResourceSlices of this node at the API server.
type resourceSlices interface {
	// Delete deletes the ResourceSlices of a driver, or of all drivers if driver is empty. It does nothing if the
	// server does not have the API.
	Delete(ctx context.Context, driver string) error
}

// DriversConfig holds the configuration of Drivers. All fields are required unless noted otherwise.
type DriversConfig struct {
	Slices resourceSlices                                           // nil: standalone
	Dial   func(ctx context.Context, path string) (net.Conn, error) // nil: connect to a UNIX socket
	// OnDriver is called with a driver that has become available. It must not block.
	OnDriver func(name string)
	Health   *Health // nil: device health is not tracked
	Log      *slog.Logger
}

// Drivers are the registered drivers. It is the plugin handler for the type DRAPlugin. A driver may be registered
// several times during a rolling update.
type Drivers struct {
	cfg     DriversConfig
	metrics metrics
	wg      sync.WaitGroup

	mu        sync.Mutex
	life      context.Context // Run's; nil before it
	byName    map[string][]*instance
	absent    map[string]bool               // drivers whose ResourceSlices are deleted, or will be
	deletions *reconcile.Reconciler[string] // of the ResourceSlices of a driver, or of all
}

// instance is one registration of a driver.
type instance struct {
	name, endpoint string
	client         drav1.DRAPluginClient
	prefix         string // of the method names in metrics
	conn           *grpc.ClientConn
	health         bool
	stop           context.CancelFunc
	done           chan struct{} // closed when its goroutines have ended

	up bool // guarded by Drivers.mu
}

// NewDrivers returns Drivers without any registered driver.
func NewDrivers(cfg DriversConfig) *Drivers {
	d := &Drivers{
		cfg:     cfg,
		metrics: newMetrics(),
		byName:  map[string][]*instance{},
		absent:  map[string]bool{},
	}
	d.deletions = reconcile.New(reconcile.Config[string]{
		Part:    part,
		Lock:    &d.mu,
		Begin:   d.beginDeletionLocked,
		Backoff: clock.Jittered(clock.Backoff(minRetry, maxDeleteRetry), 0.1), // nodes do not retry at the same time
		Log:     cfg.Log,
	})
	return d
}

// OnDriver sets [DriversConfig.OnDriver]. It is called before Run.
func (d *Drivers) OnDriver(f func(name string)) { d.cfg.OnDriver = f }

// Run tracks the drivers until ctx ends. It deletes the ResourceSlices of drivers that are gone, and once at its start
// those of all drivers.
func (d *Drivers) Run(ctx context.Context) error {
	d.mu.Lock()
	d.life = ctx
	if d.cfg.Slices != nil {
		d.deletions.RequestLocked(allDrivers)
	}
	for name, list := range d.byName { // registered before Run
		for _, i := range list {
			d.followLocked(i)
		}
		d.updateSlicesLocked(name)
	}
	d.mu.Unlock()
	d.deletions.Start(ctx)
	<-ctx.Done()
	d.mu.Lock()
	d.life = nil // nothing is followed any more
	d.mu.Unlock()
	d.deletions.Wait()
	d.wg.Wait()
	return d.closeAll()
}

// closeAll closes the connections to the drivers.
func (d *Drivers) closeAll() error {
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

// Validate validates a registration.
func (d *Drivers) Validate(name, _ string, services []string) error {
	if _, err := chooseService(name, services); err != nil {
		return fmt.Errorf("invalid versions of plugin %s: %w", name, err)
	}
	return nil
}

// Register registers a driver.
func (d *Drivers) Register(_ context.Context, name, endpoint string, services []string) error {
	service, err := chooseService(name, services)
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
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = maxReconnect
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           reconnect,
			MinConnectTimeout: maxReconnect,
		}))
	if err != nil {
		return fmt.Errorf("dial DRA driver %s: %w", name, err)
	}
	i := &instance{
		name:     name,
		endpoint: endpoint,
		conn:     conn,
		health:   servesHealth(services),
		stop:     func() {},
		client:   drav1.NewDRAPluginClient(conn),
		prefix:   "/" + drav1.DRAPlugin_ServiceDesc.ServiceName + "/",
	}
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

// add adds an instance, if there is none at its endpoint.
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
	d.updateSlicesLocked(i.name)
	return true
}

// Deregister removes the instance of a driver at the endpoint.
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
	d.updateSlicesLocked(name)
	stop, done := i.stop, i.done
	d.mu.Unlock()
	stop()
	if done != nil {
		<-done
	}
	if err := i.conn.Close(); err != nil {
		return fmt.Errorf("close connection to DRA driver %s: %w", name, err)
	}
	d.cfg.Log.Info("DRA driver deregistered", "driver", name, "endpoint", endpoint)
	return nil
}

// followLocked starts the goroutines that track an instance.
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
	for backoff := retries; ; {
		err := panics.Try(d.cfg.Log, part, func() error {
			d.watchConnection(ctx, i)
			return nil
		})
		if err == nil || !clock.Sleep(ctx, backoff.Step()) {
			return
		}
	}
}

func (d *Drivers) watchConnection(ctx context.Context, i *instance) {
	i.conn.Connect()
	for {
		state := i.conn.GetState()
		if d.setState(i, state) {
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

// setState stores the state of the connection to a driver. It reports whether the driver has just become reachable.
func (d *Drivers) setState(i *instance, state connectivity.State) (came bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	came = !i.up && state == connectivity.Ready
	i.up = state == connectivity.Ready
	d.updateSlicesLocked(i.name)
	return came
}

// updateSlicesLocked schedules the deletion of a driver's ResourceSlices if the driver is not connected, and cancels it
// if it is.
func (d *Drivers) updateSlicesLocked(name string) {
	if d.cfg.Slices == nil || d.life == nil {
		return
	}
	up := slices.ContainsFunc(d.byName[name], func(i *instance) bool { return i.up })
	switch {
	case up && d.absent[name]:
		delete(d.absent, name)
		d.deletions.ForgetLocked(name)
	case !up && !d.absent[name]:
		d.absent[name] = true
		d.deletions.ScheduleLocked(name, sliceGracePeriod)
	}
}

// allDrivers is the key of the deletion of all ResourceSlices of the node.
const allDrivers = ""

// beginDeletionLocked returns an attempt to delete the ResourceSlices of a driver, or of all.
func (d *Drivers) beginDeletionLocked(name string) reconcile.Attempt {
	log := d.cfg.Log.With("driver", cmp.Or(name, "all"))
	return reconcile.Attempt{
		Do: func(ctx context.Context) error { return d.cfg.Slices.Delete(ctx, name) },
		End: func(r reconcile.Result) reconcile.Next {
			switch {
			case r.Cancelled:
				return reconcile.Next{}
			case r.Err != nil:
				return reconcile.Next{
					Retry: true,
					Then: func() {
						log.Warn("failed to delete ResourceSlices of DRA driver", "retryAfter", r.Pause, "err", r.Err)
					},
				}
			}
			return reconcile.Next{
				Then: func() { log.Info("deleted ResourceSlices of drivers that are gone") },
			}
		},
	}
}

// find returns the instance to call: the latest one that is connected, or else the latest one.
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
