package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
)

// runtime is the image service of the container runtime.
type runtime interface {
	ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
	RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error)
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
}

// Config holds what a Collector is built from. Fields are required unless their comment says otherwise.
type Config struct {
	Runtime runtime
	// Filesystem returns the usage of the file system that contains a path.
	Filesystem func(path string) (machine.Filesystem, error)
	// InUse returns the images of all containers, running or not, by any name that the runtime uses
	// for them, and the images that are about to be used.
	InUse func(context.Context) ([]string, error)
	// After is closed when InUse is complete. Garbage collection begins then.
	After <-chan struct{}
	// OnPass, if not nil, is called after each pass with the images that remain.
	OnPass func(images []*runtimeapi.Image, at time.Time)
	// High and Low are percentages of the capacity. When usage reaches High, images are removed
	// until it is at Low. MaxAge, unless zero, is how long an image may be unused. MinAge is how
	// long an image stays in any case.
	High, Low      int
	MinAge, MaxAge time.Duration
	Events         pod.Events
	Registry       prometheus.Registerer // nil: metrics are not registered
	Tracer         trace.Tracer          // nil: no tracing
	Log            *slog.Logger
	Now            func() time.Time
}

// Limits are the settings that can be changed at run time.
type Limits struct {
	High, Low      int
	MinAge, MaxAge time.Duration
}

// none reports whether image garbage collection is disabled.
func (l Limits) none() bool { return l.High == 100 && l.MaxAge == 0 }

// Collector garbage-collects images. It is safe for concurrent use.
type Collector struct {
	cfg     Config
	limits  atomic.Pointer[Limits]
	began   time.Time
	removed *prometheus.CounterVec

	mu      sync.Mutex // held during a pass
	records map[key]record
}

// New makes a collector. It removes nothing before Run.
func New(cfg Config) (*Collector, error) {
	c := &Collector{cfg: cfg, began: cfg.Now()}
	c.Adjust(Limits{High: cfg.High, Low: cfg.Low, MinAge: cfg.MinAge, MaxAge: cfg.MaxAge})
	var err error
	c.removed, err = newCounter(cfg.Registry)
	return c, err
}

// Adjust changes the limits from the next pass on.
func (c *Collector) Adjust(l Limits) { c.limits.Store(&l) }

// Run garbage-collects images periodically until ctx ends. A failed pass is logged and retried
// after the period. From the second consecutive failure on, an event is recorded on the node.
func (c *Collector) Run(ctx context.Context) error {
	if c.limits.Load().none() {
		c.cfg.Log.Info("image garbage collection is disabled")
	}
	select {
	case <-ctx.Done():
		return nil
	case <-c.cfg.After:
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for failed := false; ; {
		var err error
		if !c.limits.Load().none() {
			err = c.Collect(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && failed:
			c.cfg.Events.Node(v1.EventTypeWarning, EventImageGCFailed, err.Error())
			fallthrough
		case err != nil:
			c.cfg.Log.Warn("image garbage collection failed", "err", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Collect makes one pass: it removes images that have been unused for too long, and then others if
// disk usage is above the threshold.
func (c *Collector) Collect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Tracer != nil {
		var span trace.Span
		ctx, span = c.cfg.Tracer.Start(ctx, "Images/GarbageCollect")
		defer span.End()
	}
	now, limits := c.cfg.Now(), c.limits.Load()
	images, err := c.detectImages(ctx, now)
	if err != nil {
		return err
	}
	removed := map[key]bool{}
	defer func() { c.report(images, removed, now) }()

	old, rest := tooOld(candidates(c.records), limits.MaxAge, c.began, now)
	_, err = c.remove(ctx, old, reasonAge, math.MaxUint64, removed)
	return errors.Join(err, c.collectForSpace(ctx, rest, *limits, now, removed))
}

// collectForSpace removes images if disk usage is above the threshold.
func (c *Collector) collectForSpace(
	ctx context.Context, from []record, limits Limits, now time.Time, removed map[key]bool,
) error {
	fs, err := c.filesystem(ctx)
	if err != nil {
		return err
	}
	if fs.Capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		c.cfg.Events.Node(v1.EventTypeWarning, EventInvalidDiskCapacity, err.Error())
		return err
	}
	want, percent, over := excess(fs.Capacity, fs.Available, limits.High, limits.Low)
	if !over {
		return nil
	}
	c.cfg.Log.Info("disk usage on image filesystem is over the high threshold", "usage", percent,
		"highThreshold", limits.High, "lowThreshold", limits.Low, "amountToFree",
		want)
	freed, err := c.free(ctx, from, want, now, removed)
	if err != nil {
		return err
	}
	if freed < want {
		// Other data uses the disk.
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			percent, sizeText(fs.Capacity), freed)
		c.cfg.Events.Node(v1.EventTypeWarning, EventFreeDiskSpaceFailed, message)
		return errors.New(message)
	}
	return nil
}

// DeleteUnused removes all unused images regardless of disk usage, and returns the number of bytes
// freed.
func (c *Collector) DeleteUnused(ctx context.Context) (freed uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	images, err := c.detectImages(ctx, now)
	if err != nil {
		return 0, err
	}
	removed := map[key]bool{}
	defer func() { c.report(images, removed, now) }()
	return c.free(ctx, candidates(c.records), math.MaxUint64, now, removed)
}

// detectImages reads which images are present and which are in use. The latter is read first: an image
// pulled in between then counts as new, not as unused.
func (c *Collector) detectImages(ctx context.Context, now time.Time) ([]*runtimeapi.Image, error) {
	names, err := c.cfg.InUse(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images in use: %w", err)
	}
	resp, err := c.cfg.Runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	used := make(map[string]bool, len(names))
	for _, n := range names {
		used[n] = true
	}
	c.records = observe(c.records, resp.GetImages(), used, c.records == nil, now)
	return resp.GetImages(), nil
}

// free removes images older than MinAge until enough bytes are freed.
func (c *Collector) free(
	ctx context.Context, from []record, want uint64, now time.Time, removed map[key]bool,
) (uint64, error) {
	var may []record
	young := c.limits.Load().MinAge
	for _, r := range from {
		if oldEnough(r, young, now) {
			may = append(may, r)
		}
	}
	freed, err := c.remove(ctx, may, reasonSpace, want, removed)
	if err != nil {
		return freed, fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			want,
			freed, err)
	}
	return freed, nil
}

// remove removes images in order until enough bytes are freed. It continues after a failure.
func (c *Collector) remove(
	ctx context.Context, images []record, reason string, want uint64, removed map[key]bool,
) (freed uint64, err error) {
	var errs []error
	for _, r := range images {
		if freed >= want || ctx.Err() != nil {
			break
		}
		spec := &runtimeapi.ImageSpec{Image: r.id, RuntimeHandler: r.handler}
		if _, err := c.cfg.Runtime.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec}); err != nil {
			errs = append(errs, err)
			continue
		}
		c.cfg.Log.Info("removed image", "imageID", r.id, "size", r.size, "reason", reason)
		c.removed.WithLabelValues(reason).Inc()
		delete(c.records, r.key)
		removed[r.key] = true
		freed += r.size
	}
	return freed, errors.Join(errs...)
}

// report calls OnPass with the remaining images.
func (c *Collector) report(images []*runtimeapi.Image, removed map[key]bool, at time.Time) {
	if c.cfg.OnPass == nil {
		return
	}
	var left []*runtimeapi.Image
	for _, img := range images {
		if !removed[keyOf(img)] {
			left = append(left, img)
		}
	}
	c.cfg.OnPass(left, at)
}

// filesystem returns the usage of the image file system.
func (c *Collector) filesystem(ctx context.Context) (machine.Filesystem, error) {
	resp, err := c.cfg.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return machine.Filesystem{}, err
	}
	if len(resp.GetImageFilesystems()) == 0 {
		return machine.Filesystem{}, errors.New("read image file system: runtime reports none")
	}
	return c.cfg.Filesystem(resp.ImageFilesystems[0].GetFsId().GetMountpoint())
}
