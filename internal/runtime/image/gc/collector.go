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

	"keelson/internal/pods/pod"
	"keelson/internal/resources/machine"
)

// runtime is the part of the container runtime that keeps images.
type runtime interface {
	ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
	RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error)
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
}

// Config holds what a Collector is built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	Runtime runtime
	// Filesystem describes the file system that holds a path.
	Filesystem func(path string) (machine.Filesystem, error)
	// InUse are the images that containers, running or not, are made of, by
	// whatever name the runtime knows them, and those that are about to be used.
	InUse func(context.Context) ([]string, error)
	// After is closed when InUse can know everything; passes begin then.
	After <-chan struct{}
	// OnPass, if not nil, is told after a pass which images there were when.
	OnPass func(images []*runtimeapi.Image, at time.Time)
	// High and Low are percents of the capacity: above the one, images are
	// removed until the other. MaxAge, if not zero, is how long an image may be
	// unused at all, MinAge how long an image stays in any case.
	High, Low      int
	MinAge, MaxAge time.Duration
	Events         pod.Events
	Registry       prometheus.Registerer // nil: nothing is counted
	Tracer         trace.Tracer          // nil: nothing is traced
	Log            *slog.Logger
	Now            func() time.Time
}

// Limits are the settings that may change while the collector works.
type Limits struct {
	High, Low      int
	MinAge, MaxAge time.Duration
}

// none reports that there is no reason to remove any image.
func (l Limits) none() bool { return l.High == 100 && l.MaxAge == 0 }

// Collector removes images. It is safe for concurrent use.
type Collector struct {
	cfg     Config
	limits  atomic.Pointer[Limits]
	began   time.Time
	removed *prometheus.CounterVec

	mu      sync.Mutex // held for a whole pass
	records map[key]record
}

// New makes a collector; it removes nothing before Run.
func New(cfg Config) (*Collector, error) {
	c := &Collector{cfg: cfg, began: cfg.Now()}
	c.Adjust(Limits{High: cfg.High, Low: cfg.Low, MinAge: cfg.MinAge, MaxAge: cfg.MaxAge})
	var err error
	c.removed, err = newCounter(cfg.Registry)
	return c, err
}

// Adjust has other limits hold from the next pass on.
func (c *Collector) Adjust(l Limits) { c.limits.Store(&l) }

// Run makes passes until ctx ends. A failed pass is logged and tried again at
// its time; the second one in a row is said on the node.
func (c *Collector) Run(ctx context.Context) error {
	if c.limits.Load().none() {
		c.cfg.Log.Info("images are not collected: the configuration asks for no reason to")
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
			c.cfg.Log.Warn("cannot collect images", "err", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Collect makes one pass: images that are too old go, and if the disk is too
// full, others until it is not.
func (c *Collector) Collect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Tracer != nil {
		var span trace.Span
		ctx, span = c.cfg.Tracer.Start(ctx, "Images/GarbageCollect")
		defer span.End()
	}
	now, limits := c.cfg.Now(), c.limits.Load()
	images, err := c.look(ctx, now)
	if err != nil {
		return err
	}
	gone := map[key]bool{}
	defer func() { c.report(images, gone, now) }()

	old, rest := tooOld(candidates(c.records), limits.MaxAge, c.began, now)
	_, err = c.remove(ctx, old, reasonAge, math.MaxUint64, gone)
	return errors.Join(err, c.relieve(ctx, rest, *limits, now, gone))
}

// relieve removes images if the disk is too full, whatever became of the old ones.
func (c *Collector) relieve(ctx context.Context, from []record, limits Limits, now time.Time, gone map[key]bool) error {
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
	c.cfg.Log.Info("disk of images is nearly full", "percent", percent, "high", limits.High, "low", limits.Low, "bytes", want)
	freed, err := c.free(ctx, from, want, now, gone)
	if err != nil {
		return err
	}
	if freed < want {
		// The disk is full of other things.
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			percent, sizeText(fs.Capacity), freed)
		c.cfg.Events.Node(v1.EventTypeWarning, EventFreeDiskSpaceFailed, message)
		return errors.New(message)
	}
	return nil
}

// DeleteUnused removes every image that may go, however much space there is, and
// tells how many bytes that were.
func (c *Collector) DeleteUnused(ctx context.Context) (freed uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	images, err := c.look(ctx, now)
	if err != nil {
		return 0, err
	}
	gone := map[key]bool{}
	defer func() { c.report(images, gone, now) }()
	return c.free(ctx, candidates(c.records), math.MaxUint64, now, gone)
}

// look reads what is there and what is in use. What is in use is read first: an
// image that comes in between is new, and is not taken for an unused old one.
func (c *Collector) look(ctx context.Context, now time.Time) ([]*runtimeapi.Image, error) {
	names, err := c.cfg.InUse(ctx)
	if err != nil {
		return nil, fmt.Errorf("find images in use: %w", err)
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

// free removes settled images until enough bytes are free.
func (c *Collector) free(ctx context.Context, from []record, want uint64, now time.Time, gone map[key]bool) (uint64, error) {
	var may []record
	young := c.limits.Load().MinAge
	for _, r := range from {
		if settled(r, young, now) {
			may = append(may, r)
		}
	}
	freed, err := c.remove(ctx, may, reasonSpace, want, gone)
	if err != nil {
		return freed, fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", want, freed, err)
	}
	return freed, nil
}

// remove removes images in order until enough bytes are free. One that cannot be
// removed does not save those after it.
func (c *Collector) remove(ctx context.Context, images []record, reason string, want uint64, gone map[key]bool) (freed uint64, err error) {
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
		c.cfg.Log.Info("removed image", "image", r.id, "bytes", r.size, "reason", reason)
		c.removed.WithLabelValues(reason).Inc()
		delete(c.records, r.key)
		gone[r.key] = true
		freed += r.size
	}
	return freed, errors.Join(errs...)
}

// report tells which images are left.
func (c *Collector) report(images []*runtimeapi.Image, gone map[key]bool, at time.Time) {
	if c.cfg.OnPass == nil {
		return
	}
	var left []*runtimeapi.Image
	for _, img := range images {
		if !gone[keyOf(img)] {
			left = append(left, img)
		}
	}
	c.cfg.OnPass(left, at)
}

// filesystem is the state of the one that holds the images.
func (c *Collector) filesystem(ctx context.Context) (machine.Filesystem, error) {
	resp, err := c.cfg.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return machine.Filesystem{}, err
	}
	if len(resp.GetImageFilesystems()) == 0 {
		return machine.Filesystem{}, errors.New("read image file system: the runtime names none")
	}
	return c.cfg.Filesystem(resp.ImageFilesystems[0].GetFsId().GetMountpoint())
}
