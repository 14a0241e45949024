package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/config/settings"
	"keelson/internal/host/cgroup"
	"keelson/internal/host/logind"
	"keelson/internal/host/shutdown"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/desired"
	"keelson/internal/pods/podsync"
	"keelson/internal/pods/podsync/handlers"
	"keelson/internal/pods/podsync/judge"
	"keelson/internal/pods/podsync/orphan"
	"keelson/internal/pods/podsync/poddir"
	"keelson/internal/pods/status"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/container"
)

// pods are the pods of the node, from their sources to their statuses.
type pods struct {
	desired    *desired.Store
	statuses   *status.Writer
	allocation *allocation.Ledger
	cgroups    podCgroups
	dirs       poddir.Dirs
	syncer     *podsync.Syncer
	leaving    *shutdown.Watcher
	settled    chan struct{} // closed when all pods of earlier agents are known
}

func newPods(
	g *ground, h *host, r *runtimes, s *apiserver, n *nodes, m *managers, o *objects, p *pullers, v *volumes,
	c *containers, able handlers.Handlers,
) *pods {
	out := &pods{
		desired:  newDesired(g, s, n),
		statuses: newStatuses(g, r, s, able),
		settled:  make(chan struct{}),
		dirs:     settings.PodDirs(g.cfg),
	}
	out.dirs.RemoveDir = v.manager.RemoveDir
	occupancy := judge.Occupancy{
		Desired:  out.desired,
		Observed: r.observed,
		Topology: m.topology,
		MayClaim: g.workers.MayClaim,
	}
	out.allocation = newAllocation(g, h, s, n, m, occupancy, c.runner)
	tree := r.cgroups
	if tree != nil {
		tree = tree.WithExclusiveCPUs(m.quotaExempt.Pod)
	}
	out.cgroups = podCgroups{
		cgroup.NewPods(cgroup.PodsConfig{Tree: tree, Account: out.allocation.Account, Log: g.log}), m.users,
	}
	out.leaving = newShutdown(g, s, n, out, occupancy)
	out.syncer = podsync.New(out.syncerConfig(g, r, s, n, m, o, p, v, c))
	g.metrics.MustRegister(out.syncer, out.leaving)
	return out
}

// syncerConfig collects the parts that pods are synced with.
func (p *pods) syncerConfig(
	g *ground, r *runtimes, s *apiserver, n *nodes, m *managers, o *objects, pull *pullers, v *volumes, c *containers,
) podsync.Config {
	runner := container.Gated{Runner: c.runner, Reported: n.RuntimeAnswered()}
	cfg := settings.Syncer(g.cfg)
	cfg.Desired = p.desired
	cfg.Observed = r.observed
	cfg.Runtime = podsync.Runtime{
		Relister:  r.observed,
		Sandboxes: runner,
		Starter:   runner,
		Stopper:   runner,
		Updater:   runner,
		Logs:      runner,
	}
	cfg.Images = images{pull.ForPods}
	cfg.Volumes = podsync.Volumes{
		Preparer: v.manager,
		Releaser: v.manager,
		Mounter:  v.manager,
	}
	cfg.Claims = podsync.Claims{
		Preparer:         m.claims,
		Releaser:         m.claims,
		ClaimContributor: m.claims,
		HealthReporter:   m.claims,
	}
	cfg.Objects = o.store
	cfg.Cgroups = podsync.Cgroups{
		CgroupMaker:   p.cgroups,
		CgroupResizer: p.cgroups,
		CgroupRemover: p.cgroups,
	}
	cfg.Probes = probes{c.prober}
	cfg.Status = p.statuses
	cfg.Allocation = podsync.Allocation{
		Admitter:  p.allocation,
		Allocated: p.allocation,
		Actuation: p.allocation,
		Resizes:   p.allocation,
		Occupancy: p.allocation,
	}
	cfg.Resources = podsync.Resources{
		Confirmer:           m.topology,
		ResourceContributor: m.topology,
		ResourceReleaser:    m.topology,
		HealthReporter:      m.topology,
	}
	cfg.Disk = podsync.Disk{
		Dirs:            p.dirs,
		RestartRecords:  p.dirs,
		EvictionRecords: p.dirs,
	}
	cfg.Node = podsync.Node{
		Leaving:         p.leaving.Resumed,
		NetworkReady:    n.NetworkReady,
		HostIPs:         n.HostIPTexts,
		NodeIP:          settings.NodeIP(g.cfg),
		AddressMismatch: n.AddressMismatch,
	}
	cfg.Events = s.events
	cfg.OnNameFree = p.desired.SyncMirrors
	cfg.Tracer = g.tracer()
	cfg.Log = g.log
	cfg.Now = time.Now
	return cfg
}

// newShutdown creates the watcher that terminates pods before the machine shuts down.
func newShutdown(g *ground, s *apiserver, n *nodes, p *pods, o judge.Occupancy) *shutdown.Watcher {
	return shutdown.New(shutdown.Config{
		Dial:    g.links.dialLogin,
		Allow:   func(delay time.Duration) error { return logind.Allow(logind.Dir, delay) },
		Periods: settings.ShutdownPeriods(g.cfg),
		Pods:    func() []*v1.Pod { return o.Present(p.allocation.Account()) },
		Settled: p.settled,
		End:     g.workers.Terminate,
		OnChange: func() {
			n.Wake()
			g.workers.Shutdown()
		},
		Events: s.events,
		Dir:    g.cfg.Flags.RootDir,
		Log:    g.log,
		Now:    time.Now,
	})
}

// podCgroups are the cgroups of pods as workers use them: the user IDs of a pod are released after its cgroup.
type podCgroups struct {
	*cgroup.Pods
	users *userns.Allocator
}

// RemovePod removes the pod's cgroup, and then releases its user IDs, as which nothing runs any more.
func (c podCgroups) RemovePod(ctx context.Context, uid types.UID) error {
	if err := c.Pods.RemovePod(ctx, uid); err != nil {
		return err
	}
	return c.users.Release(uid)
}

// Size returns the limits of the pod's cgroup now, and those that p requires.
func (c podCgroups) Size(p *v1.Pod) (now, next allocation.Size, err error) {
	n, x, err := c.Pods.Size(p)
	return allocation.Size(n), allocation.Size(x), err
}

// newOrphans creates the finder of pods of earlier agents that no source has any more.
func newOrphans(g *ground, r *runtimes, m *managers, v *volumes, c *containers, p *pods) *orphan.Finder {
	traces := map[string]func(func(types.UID) bool) ([]types.UID, error){
		"directories": v.manager.Orphans,
		"logs":        p.dirs.Logged,
	}
	if tree := r.cgroups; tree != nil {
		traces["cgroups"] = func(func(types.UID) bool) ([]types.UID, error) { return tree.List() }
	}
	return orphan.New(orphan.Config{
		Syncer:   p.syncer,
		Desired:  p.desired,
		Observed: r.observed,
		Traces:   traces,
		Pruners:  []orphan.Pruner{p.allocation, m.topology, m.claims},
		OnSettled: func() {
			close(p.settled)
			v.persistent.Settle()
		},
		RemoveDeadLinks: c.runner.RemoveDeadLinks,
		Log:             g.log,
	})
}
