package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"keelson/internal/node/checkpoint"
	"keelson/internal/node/panics"
)

const (
	part = "DRA drivers" // of the agent, where a panic is counted
	// tellsPerSecond and tellsAtOnce bound what a driver can make the agent read.
	tellsPerSecond = 10
	tellsAtOnce    = 10
)

// HealthConfig holds what a Health is built from. All fields are required.
type HealthConfig struct {
	Path string // of the file
	// OnNews is called when devices of a driver are otherwise than they were. It must
	// not block.
	OnNews func(driver string)
	Log    *slog.Logger
}

// Health is how well devices are, as their drivers tell. Of a device of which nothing
// was heard for too long nothing is known.
type Health struct {
	cfg HealthConfig

	writing sync.Mutex // held while the file is written; taken before mu

	mu       sync.Mutex
	drivers  map[string]healthOfDriver
	lapsing  map[string]*time.Timer // when the next of a driver's devices is not heard of for too long
	unsaved  bool
	finished bool
}

// healthOfDriver and healthOfDevice are the form of the file.
type healthOfDriver struct {
	Devices map[string]healthOfDevice // by pool/name
}

type healthOfDevice struct {
	PoolName           string
	DeviceName         string
	Health             string
	LastUpdated        time.Time
	HealthCheckTimeout time.Duration
	Message            string
}

// NewHealth makes a Health that has heard nothing yet.
func NewHealth(cfg HealthConfig) *Health {
	return &Health{cfg: cfg, drivers: map[string]healthOfDriver{}, lapsing: map[string]*time.Timer{}}
}

// Load takes up what the file says. A file that cannot be used is put aside, and the
// failure tells where.
func (h *Health) Load() error {
	if err := checkpoint.Sweep(h.cfg.Path); err != nil {
		return err
	}
	content, err := checkpoint.Read(h.cfg.Path)
	if err == nil && content == nil {
		return nil
	}
	drivers := map[string]healthOfDriver{}
	if err == nil {
		err = json.Unmarshal(content, &drivers)
	}
	if err != nil {
		return checkpoint.PutAside(h.cfg.Path, fmt.Errorf("decode health of devices: %w", err))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, d := range drivers {
		if d.Devices == nil {
			d.Devices = map[string]healthOfDevice{}
		}
		h.drivers[name] = d
	}
	return nil
}

// Run waits for what is not heard of any more until ctx ends: also for what an agent
// before this one has heard.
func (h *Health) Run(ctx context.Context) error {
	h.mu.Lock()
	for driver := range h.drivers {
		h.lapseLocked(driver, time.Now())
	}
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.finished = true
	for _, t := range h.lapsing {
		t.Stop()
	}
	h.mu.Unlock()
	return nil
}

// Of tells how well a device is, and what its driver says about it.
func (h *Health) Of(driver, pool, name string) (v1.ResourceHealthStatus, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.drivers[driver].Devices[pool+"/"+name]
	if !ok {
		return v1.ResourceHealthStatusUnknown, ""
	}
	return d.at(time.Now()), d.Message
}

// at is how well the device is known to be at a time.
func (d healthOfDevice) at(now time.Time) v1.ResourceHealthStatus {
	if !now.Before(d.LastUpdated.Add(d.HealthCheckTimeout)) {
		return v1.ResourceHealthStatusUnknown
	}
	return v1.ResourceHealthStatus(d.Health)
}

// follow takes what a driver tells until ctx ends, or the driver says that it tells
// nothing.
func (h *Health) follow(ctx context.Context, driver string, conn *grpc.ClientConn) {
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		var heard bool
		err := panics.Try(h.cfg.Log, part, func() (err error) {
			heard, err = h.watch(ctx, driver, conn)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if status.Code(err) == codes.Unimplemented {
			h.cfg.Log.Info("a DRA driver does not tell how well its devices are", "driver", driver)
			return
		}
		if heard {
			pause = minRetry
		}
		h.cfg.Log.Debug("a DRA driver has ended telling how well its devices are", "driver", driver, "again_in", pause, "err", err)
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (h *Health) watch(ctx context.Context, driver string, conn *grpc.ClientConn) (heard bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := healthapi.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	limit := rate.NewLimiter(tellsPerSecond, tellsAtOnce)
	for {
		resp, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		if len(resp.Devices) > maxDevices {
			return true, fmt.Errorf("DRA driver %s tells of %d devices", driver, len(resp.Devices))
		}
		h.heard(driver, resp.Devices, time.Now())
		if err := limit.Wait(ctx); err != nil {
			return true, err
		}
	}
}

// heard takes what a driver has told of all its devices. Those that are missing lapse.
func (h *Health) heard(driver string, list []*healthapi.DeviceHealth, now time.Time) {
	h.tell(driver, h.keep(driver, list, now))
}

// keep stores the health of all devices of a driver, and reports whether it has changed.
func (h *Health) keep(driver string, list []*healthapi.DeviceHealth, now time.Time) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.drivers[driver].Devices
	next := maps.Clone(before)
	if next == nil {
		next = map[string]healthOfDevice{}
	}
	for key, d := range next {
		if d.at(now) == v1.ResourceHealthStatusUnknown {
			delete(next, key) // nothing is lost with it
		}
	}
	for _, told := range list {
		d := healthOfDevice{PoolName: told.GetDevice().GetPoolName(), DeviceName: told.GetDevice().GetDeviceName(), Health: string(healthNamed(told.GetHealth())),
			LastUpdated: now, HealthCheckTimeout: healthTimeout, Message: shortened(told.GetMessage())}
		if s := told.GetHealthCheckTimeoutSeconds(); s > 0 && s < int64(1<<31) {
			d.HealthCheckTimeout = time.Duration(s) * time.Second
		}
		key := d.PoolName + "/" + d.DeviceName
		if _, known := next[key]; !known && len(next) >= maxDevices {
			continue // those that it told of before have not lapsed yet
		}
		next[key] = d
	}
	h.drivers[driver] = healthOfDriver{next}
	h.unsaved = true
	news = len(before) != len(next)
	for key, d := range next {
		old, ok := before[key]
		news = news || !ok || old.at(now) != d.at(now) || old.Message != d.Message
	}
	h.lapseLocked(driver, now)
	return news
}

// lapseLocked sets the timer for the next device of a driver whose health expires.
func (h *Health) lapseLocked(driver string, now time.Time) {
	if t := h.lapsing[driver]; t != nil {
		t.Stop()
		delete(h.lapsing, driver)
	}
	var next time.Time
	for _, d := range h.drivers[driver].Devices {
		if at := d.LastUpdated.Add(d.HealthCheckTimeout); d.at(now) != v1.ResourceHealthStatusUnknown && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() || h.finished {
		return
	}
	h.lapsing[driver] = panics.After(h.cfg.Log, part, next.Sub(now), func() { h.lapse(driver) })
}

// lapse syncs the pods with devices of the driver after the health of a device has expired.
func (h *Health) lapse(driver string) {
	h.lookOut(driver)
	h.cfg.OnNews(driver)
}

// lookOut sets the timer for the next device of a driver whose health expires.
func (h *Health) lookOut(driver string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lapseLocked(driver, time.Now())
}

// tell writes the file, and has others look at the driver's devices.
func (h *Health) tell(driver string, news bool) {
	if err := h.save(); err != nil {
		h.cfg.Log.Warn("cannot write down how well devices are", "err", err)
	}
	if news {
		h.cfg.OnNews(driver)
	}
}

func (h *Health) save() error {
	h.writing.Lock()
	defer h.writing.Unlock()
	h.mu.Lock()
	if !h.unsaved {
		h.mu.Unlock()
		return nil
	}
	h.unsaved = false
	text, err := json.Marshal(h.drivers)
	h.mu.Unlock()
	if err == nil {
		err = checkpoint.Write(h.cfg.Path, text)
	}
	if err != nil {
		h.mu.Lock()
		h.unsaved = true
		h.mu.Unlock()
	}
	return err
}

func healthNamed(s healthapi.HealthStatus) v1.ResourceHealthStatus {
	switch s {
	case healthapi.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	}
	return v1.ResourceHealthStatusUnknown
}

// shortened is what of a message is kept.
func shortened(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	const cut = "..."
	return strings.ToValidUTF8(s[:maxMessage-len(cut)], "") + cut // a letter is left out whole
}
