package app

import (
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/api/client"
	"keelson/internal/api/node"
	"keelson/internal/config"
	"keelson/internal/config/settings"
	"keelson/internal/host/checkpoint"
	"keelson/internal/host/footprint"
	"keelson/internal/host/machine"
	"keelson/internal/host/setup"
	"keelson/internal/host/systemd"
	"keelson/internal/pods/panics"
	"keelson/internal/resources/device"
	"keelson/internal/serve/server/loghealth"
	"keelson/internal/serve/tracing"
)

// ground is what every layer uses: the configuration, the log, metrics, and the notifiers that are connected when all
// layers are built.
type ground struct {
	cfg       *config.Config
	log       *slog.Logger
	logHealth *loghealth.Log
	links     Links
	metrics   *prometheus.Registry
	spans     *tracing.Spans // nil: no tracing
	service   *systemd.Service
	startup   *node.Startup

	badFiles   *checkpoint.Reporter
	workers    *workers
	conditions *conditions
	mounts     *mounts
	tidier     *footprint.Tidier
}

func newGround(cfg *config.Config, log *slog.Logger, links Links) (*ground, error) {
	log, health := loghealth.Watch(log)
	g := &ground{
		cfg:        cfg,
		log:        log,
		logHealth:  health,
		links:      links,
		metrics:    prometheus.NewRegistry(),
		service:    systemd.New(links.Operator.Notify, log),
		badFiles:   &checkpoint.Reporter{},
		conditions: &conditions{},
		tidier:     footprint.New(log),
	}
	g.workers = &workers{tidier: g.tidier}
	g.mounts = &mounts{workers: g.workers}
	if spans, ok := settings.Tracing(cfg); ok {
		spans.Log = log
		var err error
		if g.spans, err = tracing.New(spans); err != nil {
			return nil, err
		}
	}
	g.startup = node.NewStartup(g.metrics, machine.BootedAt(), time.Now())
	g.metrics.MustRegister(
		node.NewNameMetric(cfg.NodeName),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		panics.Metrics(),
		// No metric is hidden or disabled.
		prometheus.NewCounter(prometheus.CounterOpts{
			Name: "disabled_metrics_total",
			Help: "The count of disabled metrics.",
		}),
		prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hidden_metrics_total",
			Help: "The count of hidden metrics.",
		}),
	)
	g.metrics.MustRegister(cfg.Metrics()...)
	g.metrics.MustRegister(client.Metrics()...)
	return g, nil
}

// Enabled reports whether a feature gate is on.
func (g *ground) Enabled(gate string) bool { return g.cfg.Gates.Enabled(gate) }

// tracer makes spans of what the agent does by itself; nil without tracing.
func (g *ground) tracer() trace.Tracer {
	if g.spans == nil {
		return nil
	}
	return g.spans.Tracer()
}

// machineFiles are the files that describe the machine.
func (g *ground) machineFiles() fs.FS {
	if g.links.Machine != nil {
		return g.links.Machine
	}
	return machine.Host()
}

// path is a path below the root directory.
func (g *ground) path(name string) string { return filepath.Join(g.cfg.Flags.RootDir, name) }

// host describes the machine. When it is returned by newHost, the agent's directories exist.
type host struct {
	machine  machine.Info
	reserved v1.ResourceList // for the system and for Kubernetes
	plugins  string          // the directory where device plugins register
}

func newHost(g *ground) (*host, error) {
	f, k := &g.cfg.Flags, &g.cfg.Kubelet
	h := &host{}
	var err error
	if h.plugins, err = setup.DevicePluginDir(f.RootDir, device.DefaultDir); err != nil {
		return nil, err
	}
	dirs := setup.Directories{
		Root:          f.RootDir,
		DevicePlugins: h.plugins,
		Certificates:  f.CertDir,
		PodLogs:       k.PodLogsDir,
		ContainerLogs: settings.ContainerLogsDir(k),
		Label:         setup.Labeller(),
		Log:           g.log,
	}
	if err := dirs.Make(); err != nil {
		return nil, err
	}
	if err := setup.ShareMounts(f.RootDir); err != nil {
		return nil, err
	}
	if h.machine, err = machine.Read(g.machineFiles()); err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	h.reserved, err = settings.Reserved(k)
	return h, err
}
