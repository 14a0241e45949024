package app

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/config/settings"
	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/pods/desired"
	"keelson/internal/pods/podsync"
	"keelson/internal/resources/eviction"
	"keelson/internal/resources/eviction/usage"
	"keelson/internal/resources/stats"
)

// discardPatience is how long the removal of ended containers is waited for while the node is short of disk.
const discardPatience = 30 * time.Second

// newStats creates the collector that measures what the node and its pods use.
func newStats(g *ground, h *host, r *runtimes, v *volumes, d *desired.Store) *stats.Collector {
	k := &g.cfg.Kubelet
	groups, err := cgroup.Detect()
	if err != nil {
		g.log.Warn("failed to find cgroups, stats of the node lack what they measure", "err", err)
		groups = cgroup.Hierarchies{}
	}
	cfg := stats.Config{
		NodeName:       g.cfg.NodeName,
		Machine:        h.machine,
		Host:           machine.Host(),
		Runtime:        r.client,
		Pods:           func() []stats.Pod { return usage.Pods(d, r.observed) },
		FromRuntime:    g.Enabled("PodAndContainerStatsFromCRI"),
		RootDir:        g.cfg.Flags.RootDir,
		PodLogsDir:     k.PodLogsDir,
		Groups:         groups,
		Volumes:        func(uid types.UID) []stats.Volume { return usage.Volumes(v.manager, uid) },
		RefreshVolumes: v.manager.Refresh,
		System: map[string]string{
			"kubelet": k.KubeletCgroups,
			"runtime": g.cfg.Flags.RuntimeCgroups,
			"misc":    k.SystemCgroups,
		},
		Log: g.log,
	}
	if r.cgroups != nil {
		cfg.Tree = r.cgroups
	}
	if cfg.System["kubelet"] == "" {
		cfg.System["kubelet"] = groups.Own()
	}
	c := stats.New(cfg)
	g.metrics.MustRegister(c.Metrics(groups.V2())...)
	return c
}

// newEvictor creates the manager that evicts pods when the node runs out of a resource.
func newEvictor(
	g *ground, h *host, r *runtimes, s *apiserver, n *nodes, v *volumes, images *pullers, p *pods, c *stats.Collector,
) (*eviction.Manager, error) {
	source := g.links.Gauges
	if source == nil {
		source = eviction.NewMachine(eviction.MachineConfig{
			Stats:              c,
			Runtime:            r.client,
			Host:               machine.Host(),
			RootDir:            g.cfg.Flags.RootDir,
			MaxPIDs:            h.machine.MaxPIDs,
			SeparateContainers: g.Enabled("KubeletSeparateDiskGC"),
			Remeasure:          v.manager.RefreshOlder,
			Local:              func(uid types.UID) map[string]bool { return usage.LocalVolumes(v.manager, uid) },
			Log:                g.log,
		})
	}
	cfg := settings.Eviction(&g.cfg.Kubelet)
	cfg.Thresholds, cfg.Source = n.thresholds, source
	cfg.Synced = []<-chan struct{}{n.RuntimeUp(), r.observed.Synced()}
	cfg.Pods = p.allocation.Account
	cfg.Evict = func(uid types.UID, o eviction.Order) <-chan struct{} {
		return p.syncer.Evict(uid, podsync.Eviction{
			Grace:    o.Grace,
			AtOnce:   o.Immediate,
			Message:  o.Message,
			Disrupts: o.Disrupts,
		})
	}
	cfg.RemoveDeadContainers = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, discardPatience)
		defer cancel()
		return p.syncer.Discard(ctx)
	}
	cfg.RemoveUnusedImages = func(ctx context.Context) error {
		_, err := images.gc.DeleteUnused(ctx)
		return err
	}
	cfg.OnChange, cfg.Events, cfg.Registry = n.Wake, s.events, g.metrics
	cfg.Log, cfg.Now = g.log, time.Now
	return eviction.New(cfg)
}
