package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"keelson/internal/api/node"
	"keelson/internal/config"
	"keelson/internal/config/preflight"
	"keelson/internal/config/settings"
	"keelson/internal/host/machine"
	"keelson/internal/host/netfilter"
	"keelson/internal/host/oom"
	"keelson/internal/host/setup"
	"keelson/internal/host/shutdown"
	"keelson/internal/host/systemd"
	"keelson/internal/pods/podsync/handlers"
	"keelson/internal/resources/eviction"
)

// Run runs the agent until ctx ends or a part fails. Running pods are left as they are.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger, op Operator) error {
	if problems := preflight.Check(cfg, preflight.ThisHost()); len(problems) > 0 {
		return problems
	}
	cfg.Gates.ApplyToLibraries()
	process := settings.Process(&cfg.Kubelet, log)
	process.Apply()
	if path := cfg.Flags.LockFile; path != "" {
		var contended chan error
		if cfg.Flags.ExitOnLock {
			contended = make(chan error, 1)
		}
		if err := setup.HoldLock(ctx, path, contended, log); err != nil {
			if ctx.Err() != nil {
				return nil // asked to end while it waited
			}
			return err
		}
		if contended != nil {
			op.Contended = contended
		}
	}
	err := RunOver(ctx, cfg, log, Links{
		Operator:  op,
		Netfilter: netfilter.Exec,
		Kmsg:      oom.Kmsg,
		Processors: func() (idle, all time.Duration, err error) {
			return machine.ReadIdleTime(machine.Host())
		},
		KeepPlace: process.Run,
	})
	if errors.Is(err, setup.ErrContended) {
		log.Info("another process opened the lock file, exiting", "file", cfg.Flags.LockFile)
		return nil
	}
	return err
}

// RunOver is Run with connections to the outside that the caller supplies.
func RunOver(ctx context.Context, cfg *config.Config, log *slog.Logger, links Links) error {
	base, err := newGround(cfg, log, links)
	if err != nil {
		return err
	}
	a := &agent{ground: base}
	if err := a.build(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to end while it waited
		}
		reportSetupFailure(ctx, base, a.api, err)
		return err
	}
	watchdog, err := systemd.WatchdogTimeout()
	if err != nil {
		return err
	}
	parts := newGroup(base.log)
	a.start(parts)
	if links.Operator.Hangup != nil {
		parts.start("reload", a.serving.reloader.Run)
	}
	if c := links.Operator.Contended; c != nil {
		parts.start("lock file", func(ctx context.Context) error { return setup.AwaitContention(ctx, c) })
	}
	if watchdog > 0 && base.service.Managed() {
		parts.start("watchdog", func(ctx context.Context) error {
			return base.service.Watchdog(ctx, watchdog, a.serving.checks.Failing)
		})
	}
	base.service.Notify(systemd.Ready)
	defer context.AfterFunc(ctx, func() { base.service.Notify(systemd.Stopping) })()
	return parts.wait(ctx)
}

// agent is all the layers, each built from those above it.
type agent struct {
	ground     *ground
	host       *host
	runtime    *runtimes
	api        *apiserver
	node       *nodes
	managers   *managers
	objects    *objects
	images     *pullers
	volumes    *volumes
	containers *containers
	pods       *pods
	evictor    *eviction.Manager
	serving    *serving
}

// build builds the layers. It waits for the container runtime, and for a certificate where the node has none.
func (a *agent) build(ctx context.Context) (err error) {
	g := a.ground
	if a.host, err = newHost(g); err != nil {
		return err
	}
	if a.runtime, err = newRuntimes(ctx, g, a.host); err != nil {
		return err
	}
	if a.api, err = newAPIServer(ctx, g); err != nil {
		return err
	}
	g.badFiles.Connect(a.api.events)
	if a.node, err = newNode(g, a.host, a.runtime, a.api); err != nil {
		return err
	}
	if a.managers, err = newManagers(ctx, g, a.host, a.runtime, a.api, a.node); err != nil {
		return err
	}
	able := handlers.Handlers{Classes: a.api.classes, Node: a.node, Users: a.managers.users}
	a.objects = newObjects(g, a.api, a.node)
	if a.images, err = newPullers(g, a.runtime, a.api, a.objects); err != nil {
		return err
	}
	a.volumes = newVolumes(g, a.api, a.node, a.managers, a.objects, a.images.ForPods, able)
	a.containers, err = newContainers(
		g, a.host, a.runtime, a.api, a.node, a.managers, a.objects, a.volumes.manager, able)
	if err != nil {
		return err
	}
	a.pods = newPods(g, a.host, a.runtime, a.api, a.node, a.managers, a.objects, a.images, a.volumes, a.containers,
		able)
	figures := newStats(g, a.host, a.runtime, a.volumes, a.pods.desired)
	a.evictor, err = newEvictor(g, a.host, a.runtime, a.api, a.node, a.volumes, a.images, a.pods, figures)
	if err != nil {
		return err
	}
	a.serving, err = newServing(g, a.runtime, a.api, a.node, a.managers, a.containers, a.images, a.pods, figures)
	if err != nil {
		return err
	}
	a.connect()
	return nil
}

// connect connects the notifiers. All layers are built, and no part runs yet.
func (a *agent) connect() {
	g := a.ground
	g.workers.Connect(a.pods.syncer, a.pods.leaving, a.containers.mover, a.serving.podsAPI)
	g.conditions.Connect(a.evictor, a.pods.leaving)
	a.node.Connect(node.Others{
		Pressures:    a.evictor.Known,
		Problems:     a.problems,
		Devices:      a.managers.nodeDevices,
		VolumesInUse: a.volumes.persistent.InUse,
		OnChange:     a.nodeChanged,
	})
}

// problems are the reasons of other parts why the node is not ready.
func (a *agent) problems() []error {
	var out []error
	if shown := a.volumes.csi.node; shown != nil {
		if err := shown.Problem(); err != nil {
			out = append(out, err)
		}
	}
	if a.pods.leaving.ShuttingDown() {
		out = append(out, shutdown.ErrShuttingDown)
	}
	return out
}

// nodeChanged notifies the parts that depend on the Node object.
func (a *agent) nodeChanged() {
	a.pods.desired.SyncMirrors()
	a.volumes.persistent.NodeChanged()
	if a.serving.certificate != nil {
		a.serving.certificate.Trigger() // its addresses may have changed
	}
}

// start starts the parts. Those that others report to come first and those that act on pods last: parts are stopped in
// reverse order, and must be able to report until they are stopped.
func (a *agent) start(g *group) {
	a.startReporting(g)
	a.startPreparing(g)
	a.startPods(g)
	a.startGuards(g)
}

// startReporting starts the parts that others report to.
func (a *agent) startReporting(g *group) {
	api := a.api
	if a.ground.spans != nil {
		g.start("tracing", a.ground.spans.Run) // all others add to it
	}
	if api.recorder != nil {
		g.start("events", api.recorder.Run) // all others report to it
	}
	if api.certificate != nil {
		g.start("client certificate", api.certificate.Run) // without it the API server cannot be reached
	}
	if a.serving.certificate != nil {
		g.start("serving certificate", a.serving.certificate.Run)
	}
	g.start("server", a.serving.server.Run) // health is requested while the rest starts
	if a.serving.podsAPI != nil {
		g.start("pods API", a.serving.podsAPI.Run)
	}
	g.start("pod resources", a.serving.podResources.Run)
	g.start("node", a.node.Run) // host addresses and readiness
	if api.client != nil {
		g.start("services", api.services.Run)
		g.start("runtime classes", api.classes.Run)
	}
	g.start("statuses", a.pods.statuses.Run)
}

// startPreparing starts the parts that prepare what pods use: devices, objects, volumes, claims, images.
func (a *agent) startPreparing(g *group) {
	m, v := a.managers, a.volumes
	g.start("devices", m.devices.Run)            // before the pods that ask for devices
	g.start("allocation", a.pods.allocation.Run) // writes what the parts below allocate
	g.start("objects", a.objects.store.Run)
	if a.api.client != nil {
		g.start("CSI node", v.csi.node.Run)
		g.start("CSI drivers", v.csi.objects.Run)
		g.start("CSI allocatable", v.csi.refresher.Run)
	}
	if v.trust.bundles != nil {
		g.start("trust bundles", v.trust.bundles.Run)
	}
	if v.trust.requests != nil {
		g.start("pod certificates", v.trust.requests.Run)
	}
	g.start("persistent volumes", v.persistent.Run)
	if m.claimHealth != nil {
		g.start("health of claims", m.claimHealth.Run)
	}
	g.start("claim drivers", m.claimDrivers.Run)
	g.start("claims", m.claims.Run)
	g.start("plugins", once(v.plugins.Run, a.node.RuntimeUp()))
	g.start("volumes", v.manager.Run)
	if a.images.records != nil {
		g.start("pull records", a.images.records.Run)
	}
	g.start("images", a.images.Run)
	g.start("image collection", once(a.images.gc.Run, a.node.RuntimeUp())) // waits until it is known what is in use
}

// startPods starts the parts that run pods.
func (a *agent) startPods(g *group) {
	c, p, synced, up := a.containers, a.pods, a.runtime.observed.Synced(), a.node.RuntimeUp()
	g.start("probes", c.prober.Run)
	g.start("observed", a.runtime.observed.Run) // what runs must be known before it is compared
	g.start("logs", once(c.rotator.Run, up))
	c.runner.CheckHostDNS()
	g.start("pods", p.syncer.Run) // before the sources: the first pod wakes a worker
	if c.mover != nil {
		g.start("CPUs", once(c.mover.Run, synced)) // acts on what the runtime was seen to run
	}
	g.start("desired", p.desired.Run)
	if a.runtime.cgroups != nil {
		g.start("cgroups", once(p.cgroups.Run, p.settled)) // before that, pods would not be counted
	}
	g.start("orphans", newOrphans(a.ground, a.runtime, a.managers, a.volumes, c, p).Run)
}

// startGuards starts the parts that protect the node and maintain its processes.
func (a *agent) startGuards(g *group) {
	base, up := a.ground, a.node.RuntimeUp()
	g.start("shutdown", once(a.pods.leaving.Run, up)) // terminates pods, with all parts above
	if run := base.links.Netfilter; run != nil && *base.cfg.Kubelet.MakeIPTablesUtilChains {
		g.start("packet filter", netfilter.New(netfilter.Config{Exec: run, Log: base.log}).Run)
	}
	g.start("eviction", a.evictor.Run) // measures from the start, and acts when it is known what runs
	if open := base.links.Kmsg; open != nil {
		kills := oom.New(oom.Config{Open: open, OnKill: oom.RecordEvents(a.api.events), Log: base.log})
		g.start("kernel log", once(kills.Run, up))
	}
	if base.links.KeepPlace != nil {
		g.start("process", base.links.KeepPlace)
	}
	g.start("memory", once(base.tidier.Run, a.runtime.observed.Synced(), a.pods.desired.ReadyC()))
	g.start("runtime calls", a.runtime.client.Run) // ends first: calls under way have a bounded time from then on
}
