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

	"keelson/internal/host/checkpoint"
	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
)

const (
	part = "DRA drivers" // label of panics
	// messagesPerSecond and messageBurst bound the messages that are read from a driver.
	messagesPerSecond = 10
	messageBurst      = 10
)

// HealthConfig holds the configuration of a Health. All fields are required.
type HealthConfig struct {
	Path string // of the checkpoint
	// OnChange is called when the health of a driver's devices has changed. It must not block.
	OnChange func(driver string)
	Log      *slog.Logger
}

// Health is the health of devices as reported by their drivers. It is unknown for a device that was not reported within
// its timeout.
type Health struct {
	cfg HealthConfig

	writing sync.Mutex // held while the checkpoint is written; taken before mu

	mu           sync.Mutex
	drivers      map[string]healthOfDriver
	expiryTimers map[string]*time.Timer // expiry of the next device of each driver
	unsaved      bool
	finished     bool
}

// healthOfDriver and healthOfDevice are the format of the checkpoint.
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

// NewHealth returns a Health without any reports.
func NewHealth(cfg HealthConfig) *Health {
	return &Health{cfg: cfg, drivers: map[string]healthOfDriver{}, expiryTimers: map[string]*time.Timer{}}
}

// OnChange sets [HealthConfig.OnChange]. It is called before the first driver registers.
func (h *Health) OnChange(f func(driver string)) { h.cfg.OnChange = f }

// Load restores the checkpoint. One that cannot be used is set aside; the error contains its new name.
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

// Run expires reports until ctx ends, including those from the checkpoint.
func (h *Health) Run(ctx context.Context) error {
	h.mu.Lock()
	for driver := range h.drivers {
		h.scheduleExpiryLocked(driver, time.Now())
	}
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.finished = true
	for _, t := range h.expiryTimers {
		t.Stop()
	}
	h.mu.Unlock()
	return nil
}

// Of returns the health of a device and the message of its driver.
func (h *Health) Of(driver, pool, name string) (v1.ResourceHealthStatus, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.drivers[driver].Devices[pool+"/"+name]
	if !ok {
		return v1.ResourceHealthStatusUnknown, ""
	}
	return d.at(time.Now()), d.Message
}

// at returns the health of the device at the given time.
func (d healthOfDevice) at(now time.Time) v1.ResourceHealthStatus {
	if !now.Before(d.LastUpdated.Add(d.HealthCheckTimeout)) {
		return v1.ResourceHealthStatusUnknown
	}
	return v1.ResourceHealthStatus(d.Health)
}

// follow processes the reports of a driver until ctx ends, or the driver does not implement the service.
func (h *Health) follow(ctx context.Context, driver string, conn *grpc.ClientConn) {
	for backoff := retries; ; {
		var heard bool
		err := panics.Try(h.cfg.Log, part, func() (err error) {
			heard, err = h.watch(ctx, driver, conn)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if status.Code(err) == codes.Unimplemented {
			h.cfg.Log.Info("DRA driver does not report device health", "driver", driver)
			return
		}
		if heard {
			backoff = retries
		}
		pause := backoff.Step()
		h.cfg.Log.Debug("device health stream of DRA driver ended",
			"driver", driver, "retryAfter", pause, "err", err)
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

func (h *Health) watch(ctx context.Context, driver string, conn *grpc.ClientConn) (heard bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := healthapi.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx,
		&healthapi.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	limit := rate.NewLimiter(messagesPerSecond, messageBurst)
	for {
		resp, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		if len(resp.Devices) > maxDevices {
			return true, fmt.Errorf("DRA driver %s reports %d devices", driver, len(resp.Devices))
		}
		h.update(driver, resp.Devices, time.Now())
		if err := limit.Wait(ctx); err != nil {
			return true, err
		}
	}
}

// update processes a report about all devices of a driver. Devices that are missing in it expire.
func (h *Health) update(driver string, list []*healthapi.DeviceHealth, now time.Time) {
	h.persist(driver, h.store(driver, list, now))
}

// store stores the health of all devices of a driver, and reports whether it has changed.
func (h *Health) store(driver string, list []*healthapi.DeviceHealth, now time.Time) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.drivers[driver].Devices
	next := maps.Clone(before)
	if next == nil {
		next = map[string]healthOfDevice{}
	}
	for key, d := range next {
		if d.at(now) == v1.ResourceHealthStatusUnknown {
			delete(next, key) // unknown anyway
		}
	}
	for _, report := range list {
		d := healthOfDevice{
			PoolName:           report.GetDevice().GetPoolName(),
			DeviceName:         report.GetDevice().GetDeviceName(),
			Health:             string(healthStatus(report.GetHealth())),
			LastUpdated:        now,
			HealthCheckTimeout: healthTimeout,
			Message:            truncated(report.GetMessage()),
		}
		if s := report.GetHealthCheckTimeoutSeconds(); s > 0 && s < int64(1<<31) {
			d.HealthCheckTimeout = time.Duration(s) * time.Second
		}
		key := d.PoolName + "/" + d.DeviceName
		if _, known := next[key]; !known && len(next) >= maxDevices {
			continue // devices of earlier reports have not expired yet
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
	h.scheduleExpiryLocked(driver, now)
	return news
}

// scheduleExpiryLocked sets the timer for the next device of a driver whose health expires.
func (h *Health) scheduleExpiryLocked(driver string, now time.Time) {
	if t := h.expiryTimers[driver]; t != nil {
		t.Stop()
		delete(h.expiryTimers, driver)
	}
	var next time.Time
	for _, d := range h.drivers[driver].Devices {
		if d.at(now) != v1.ResourceHealthStatusUnknown {
			next = clock.Earlier(next, d.LastUpdated.Add(d.HealthCheckTimeout))
		}
	}
	if next.IsZero() || h.finished {
		return
	}
	h.expiryTimers[driver] = panics.After(h.cfg.Log, part, next.Sub(now), func() { h.expire(driver) })
}

// expire syncs the pods with devices of the driver after the health of a device has expired.
func (h *Health) expire(driver string) {
	h.scheduleExpiry(driver)
	h.cfg.OnChange(driver)
}

// scheduleExpiry sets the timer for the next device of a driver whose health expires.
func (h *Health) scheduleExpiry(driver string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scheduleExpiryLocked(driver, time.Now())
}

// persist writes the checkpoint, and triggers a sync of the pods if the health has changed.
func (h *Health) persist(driver string, news bool) {
	if err := h.save(); err != nil {
		h.cfg.Log.Warn("failed to write checkpoint of device health", "err", err)
	}
	if news {
		h.cfg.OnChange(driver)
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

func healthStatus(s healthapi.HealthStatus) v1.ResourceHealthStatus {
	switch s {
	case healthapi.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	}
	return v1.ResourceHealthStatusUnknown
}

// truncated truncates a message to maxMessage bytes.
func truncated(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	const cut = "..."
	return strings.ToValidUTF8(s[:maxMessage-len(cut)], "") + cut // without part of a character
}
