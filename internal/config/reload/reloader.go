package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/internal/host/systemd"
	"keelson/internal/runtime/image/gc"
	"keelson/internal/runtime/rotate"
)

// ImageGC garbage-collects images.
type ImageGC interface{ Adjust(gc.Limits) }

// Rotator rotates container logs.
type Rotator interface {
	Adjust(maxSize int64, maxFiles int)
}

// Service is notified of a reload; see [systemd.Service].
type Service interface{ Notify(state string) }

// Config holds what a Reloader is built from. Fields are required unless their comment
// says otherwise.
type Config struct {
	Start   *v1beta1.KubeletConfiguration  // in force at the start
	Hangup  <-chan os.Signal               // requests a reload; optional
	Load    func() (*config.Config, error) // reads the configuration; required with Hangup
	Verbose func(verbosity uint32) error   // sets the log level; optional
	Images  ImageGC
	Logs    Rotator
	Service Service
	Log     *slog.Logger
}

// Reloader owns the configuration that is in force.
type Reloader struct {
	cfg     Config
	inForce atomic.Pointer[v1beta1.KubeletConfiguration]
}

// New makes a Reloader. Nothing is read before Run.
func New(cfg Config) *Reloader {
	r := &Reloader{cfg: cfg}
	r.inForce.Store(cfg.Start.DeepCopy())
	return r
}

// InForce is the configuration that is in force. Callers do not change it.
func (r *Reloader) InForce() *v1beta1.KubeletConfiguration { return r.inForce.Load() }

// Run reloads the configuration at each signal, until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.cfg.Hangup:
			r.cfg.Service.Notify(systemd.Reloading())
			r.reload()
			r.cfg.Service.Notify(systemd.Ready)
		}
	}
}

// A group is a set of fields that can change while the agent runs, with functions that
// copy and apply them.
type group struct {
	fields []string
	take   func(into, from *v1beta1.KubeletConfiguration)
	apply  func(*Reloader, *v1beta1.KubeletConfiguration)
}

// groups are all groups. Every other field is read once at the start: a restart takes a
// second and leaves pods running.
var groups = []group{
	{
		[]string{"logging.verbosity"},
		func(into, from *v1beta1.KubeletConfiguration) { into.Logging.Verbosity = from.Logging.Verbosity },
		(*Reloader).applyVerbosity,
	},
	{
		[]string{
			"imageGCHighThresholdPercent",
			"imageGCLowThresholdPercent",
			"imageMinimumGCAge",
			"imageMaximumGCAge",
		},
		func(into, from *v1beta1.KubeletConfiguration) {
			into.ImageGCHighThresholdPercent = from.ImageGCHighThresholdPercent
			into.ImageGCLowThresholdPercent = from.ImageGCLowThresholdPercent
			into.ImageMinimumGCAge = from.ImageMinimumGCAge
			into.ImageMaximumGCAge = from.ImageMaximumGCAge
		},
		(*Reloader).applyImageGC,
	},
	{
		[]string{"containerLogMaxSize", "containerLogMaxFiles"},
		func(into, from *v1beta1.KubeletConfiguration) {
			into.ContainerLogMaxSize = from.ContainerLogMaxSize
			into.ContainerLogMaxFiles = from.ContainerLogMaxFiles
		},
		(*Reloader).applyRotation,
	},
}

func (r *Reloader) applyVerbosity(k *v1beta1.KubeletConfiguration) {
	if r.cfg.Verbose == nil {
		return
	}
	if err := r.cfg.Verbose(uint32(k.Logging.Verbosity)); err != nil {
		r.cfg.Log.Error("failed to set verbosity", "err", err)
	}
}

func (r *Reloader) applyImageGC(k *v1beta1.KubeletConfiguration) {
	r.cfg.Images.Adjust(gc.Limits{
		High:   int(*k.ImageGCHighThresholdPercent),
		Low:    int(*k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration,
		MaxAge: k.ImageMaximumGCAge.Duration,
	})
}

func (r *Reloader) applyRotation(k *v1beta1.KubeletConfiguration) {
	// The size was checked when the configuration was read.
	if size, err := rotate.ParseMaxSize(k.ContainerLogMaxSize); err == nil {
		r.cfg.Logs.Adjust(size, int(*k.ContainerLogMaxFiles))
	}
}

// sortChanges separates the changes that are applied at once, with their groups, from those that need a restart.
func sortChanges(changes []config.Change) (due []group, applied, waiting []config.Change) {
	for _, g := range groups {
		changed := false
		for _, c := range changes {
			if slices.Contains(g.fields, c.Field) {
				applied, changed = append(applied, c), true
			}
		}
		if changed {
			due = append(due, g)
		}
	}
	for _, c := range changes {
		if !slices.Contains(applied, c) {
			waiting = append(waiting, c)
		}
	}
	return due, applied, waiting
}

// reload applies the changes of fields that can change. A configuration with any problem
// is not applied.
func (r *Reloader) reload() {
	next, err := r.cfg.Load()
	if err != nil {
		r.cfg.Log.Error("failed to reload configuration; keeping the current one", "err", err)
		return
	}
	old := r.inForce.Load()
	due, applied, waiting := sortChanges(config.Changes(old, &next.Kubelet))
	now := old.DeepCopy()
	for _, g := range due {
		g.take(now, &next.Kubelet)
		g.apply(r, now)
	}
	r.inForce.Store(now)
	for _, w := range next.Warnings {
		r.cfg.Log.Warn(w) // some may be new since the start
	}
	r.cfg.Log.Info("reloaded configuration", "applied", len(applied), "waiting", len(waiting))
	for _, c := range applied {
		r.cfg.Log.Info("applied setting",
			"field", c.Field, "value", c.New, "before", c.Old, "origin", next.Origins.Of(c.Field))
	}
	for _, c := range waiting {
		r.cfg.Log.Warn("setting needs a restart of the kubelet to take effect; pods keep running during a restart",
			"field", c.Field, "value", c.New, "inForce", c.Old, "origin", next.Origins.Of(c.Field))
	}
}

// SetVerbosity sets the log level for a request to the server. The response is upstream's,
// which scripts parse.
func (r *Reloader) SetVerbosity(text string) (string, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err == nil && n < 0 {
		err = errors.New("must not be negative")
	}
	if err == nil {
		err = r.cfg.Verbose(uint32(n))
	}
	if err != nil {
		return "", fmt.Errorf("failed to set klog.logging.verbosity to %q: %w", text, err)
	}
	r.cfg.Log.Info("set verbosity", "verbosity", n)
	return fmt.Sprintf("successfully set klog.logging.verbosity to %d", n), nil
}
