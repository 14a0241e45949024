package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/internal/node/apiclient"
	"keelson/internal/node/netfilter"
	"keelson/internal/node/node"
	"keelson/internal/node/plugin"
	"keelson/internal/node/podresources"
	"keelson/internal/node/podsapi"
	"keelson/internal/node/server"
	"keelson/internal/node/shutdown"
	"keelson/internal/node/tracing"
	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/podsync"
	"keelson/internal/pods/probe"
	"keelson/internal/pods/status"
	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/device"
	"keelson/internal/resources/dra"
	"keelson/internal/resources/eviction"
	"keelson/internal/resources/machine"
	"keelson/internal/resources/memory"
	"keelson/internal/resources/oom"
	"keelson/internal/resources/resource"
	"keelson/internal/resources/stats"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/image/gc"
	"keelson/internal/runtime/image/record"
	"keelson/internal/runtime/rotate"
	"keelson/internal/storage/object"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/csi"
)

// agent is all the parts, joined. Fields are set by the build functions, in the
// order in which they stand here: each part is built from those above it.
type agent struct {
	cfg     *config.Config
	log     *slog.Logger
	inForce atomic.Pointer[v1beta1.KubeletConfiguration] // cfg's, and what changed since
	written *writing
	links   Links
	spans   *tracing.Spans // nil: nothing is traced
	lulls   lulls

	metrics  *prometheus.Registry
	machine  machine.Info
	reserved v1.ResourceList
	// thresholds are what must be left of memory, disks and process numbers.
	thresholds []eviction.Threshold
	runtime    *cri.Client
	identity   cri.Identity
	api        *apiclient.Client // nil: standalone
	ids        identities
	recorder   *apiclient.Events // nil: standalone
	events     events
	spoilt     []error // files put aside before there were events
	startup    *node.Startup
	cgroups    *cgroup.Tree // nil: no cgroups per pod
	podCgroups *cgroups
	node       *node.Node
	services   *services       // nil: standalone
	classes    *runtimeClasses // nil: standalone

	desired      *desired.Store
	observed     *observed.Cache
	objects      *object.Store
	tokens       *object.Tokens
	volumes      *volume.Manager
	lasting      *persistent.Volumes
	plugins      *plugin.Watcher
	csiNode      *csi.Shown                                          // nil: standalone
	csiDrivers   *lazyWatch[*storagev1.CSIDriver]                    // nil: standalone
	bundles      *lazyWatch[*certificatesv1beta1.ClusterTrustBundle] // nil: standalone, or the gate is off
	certificates *podCertificates                                    // likewise
	claims       *dra.Store
	claimDrivers *dra.Drivers
	claimHealth  *dra.Health    // nil: the gate is off
	csiRefresh   *csi.Refresher // nil: standalone
	images       images
	imageGC      *gc.Collector
	pulls        *record.Store // nil: what is on the node is for all its pods
	rotator      *rotate.Rotator
	users        *userns.Allocator
	runner       *container.Runner
	prober       *probe.Prober
	statuses     *status.Writer
	rules        admission.Rules
	cpus         *cpu.Pool
	mover        *cpu.Mover // nil: all containers may be on all CPUs
	devices      *device.Pool
	memory       *memory.Book
	resources    *resource.Manager
	allocation   *allocation.Ledger
	syncer       *podsync.Syncer
	stats        *stats.Collector
	evictor      *eviction.Evictor
	leaving      *shutdown.Watcher
	settled      chan struct{} // closed when all pods of earlier agents are known
	server       *server.Server
	podsAPI      *podsapi.Server // nil: the gate is off
	podResources *podresources.Server
}

// Run is the agent's life: it ends when ctx does, or when a part cannot do its
// work any more. Running pods are left as they are.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger, op Operator) error {
	if problems := Preflight(cfg, ThisHost()); len(problems) > 0 {
		return problems
	}
	useGates(cfg.Gates)
	settleProcess(&cfg.Kubelet, "/proc", log)
	if path := cfg.Flags.LockFile; path != "" {
		var contended chan error
		if cfg.Flags.ExitOnLock {
			contended = make(chan error, 1)
		}
		if err := holdLock(ctx, path, contended, log); err != nil {
			if ctx.Err() != nil {
				return nil // asked to end while it waited
			}
			return err
		}
		if contended != nil {
			op.Contended = contended
		}
	}
	err := RunOver(ctx, cfg, log, Links{Operator: op, Netfilter: netfilter.Exec, Kmsg: oom.Kmsg,
		Processors: func() (idle, all time.Duration, err error) { return machine.ReadIdleTime(machine.Host()) },
		KeepPlace:  keepPlace(&cfg.Kubelet, "/proc", settleCgroups, log)})
	if errors.Is(err, errContended) {
		log.Info("another process opened the lock file: exiting", "file", cfg.Flags.LockFile)
		return nil
	}
	return err
}

// RunOver is Run over ways to the outside that the caller brings.
func RunOver(ctx context.Context, cfg *config.Config, log *slog.Logger, links Links) error {
	log, written := watchLog(log)
	a := &agent{cfg: cfg, log: log, written: written, links: links, metrics: prometheus.NewRegistry(), lulls: newLulls(), settled: make(chan struct{})}
	a.inForce.Store(cfg.Kubelet.DeepCopy())
	if err := a.buildTracing(); err != nil {
		return err
	}
	a.startup = node.NewStartup(a.metrics, bootTime(), time.Now())
	component(a.metrics, cfg)
	for _, build := range []func(context.Context) error{
		a.buildGround, a.buildRuntime, a.buildAPI, a.buildNode, a.buildPods, a.buildEviction, a.buildServer,
	} {
		if err := build(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // asked to end while it waited
			}
			a.tellSetupFailed(ctx, err)
			return err
		}
	}
	watchdog, err := watchdogTimeout()
	if err != nil {
		return err
	}
	g := newGroup(log)
	a.start(g)
	if a.links.Operator.Hangup != nil {
		g.start("operator", a.heed)
	}
	if a.links.Operator.Contended != nil {
		g.start("lock file", a.stepAside)
	}
	if watchdog > 0 && a.links.Operator.Notify != nil {
		g.start("watchdog", a.showLife(watchdog))
	}
	a.tellManager(stateReady)
	defer context.AfterFunc(ctx, func() { a.tellManager(stateStopping) })()
	return g.wait(ctx)
}

// start starts the parts. What others report to comes first, what acts on pods
// comes last, so that on the way down nothing is done that nobody would see.
func (a *agent) start(g *group) {
	if a.spans != nil {
		g.start("tracing", a.spans.Run) // everybody adds to it
	}
	if a.recorder != nil {
		g.start("events", a.recorder.Run) // everybody reports to it
	}
	a.ids.start(g)                  // without a certificate there is no way to the API server
	g.start("server", a.server.Run) // health is asked for while the rest comes up
	if a.podsAPI != nil {
		g.start("pods API", a.podsAPI.Run)
	}
	g.start("pod resources", a.podResources.Run)
	g.start("node", a.node.Run) // host addresses and readiness
	if a.api != nil {
		g.start("services", a.services.Run)
		g.start("runtime classes", a.classes.Run)
	}
	g.start("statuses", a.statuses.Run)
	g.start("devices", a.devices.Run)       // before the pods that want some
	g.start("allocation", a.allocation.Run) // writes what the parts below grant
	g.start("objects", a.objects.Run)
	if a.api != nil {
		g.start("CSI node", a.csiNode.Run)
		g.start("CSI drivers", a.csiDrivers.Run)
		g.start("CSI allocatable", a.csiRefresh.Run)
	}
	if a.bundles != nil {
		g.start("trust bundles", a.bundles.Run)
	}
	if a.certificates != nil {
		g.start("pod certificates", a.certificates.answers.Run)
	}
	g.start("persistent volumes", a.lasting.Run)
	if a.claimHealth != nil {
		g.start("health of claims", a.claimHealth.Run)
	}
	g.start("claim drivers", a.claimDrivers.Run)
	g.start("claims", a.claims.Run)
	g.start("plugins", a.onceUp(a.plugins.Run))
	g.start("volumes", a.volumes.Run)
	if a.pulls != nil {
		g.start("pull records", a.pulls.Run)
	}
	g.start("images", a.images.Run)
	g.start("image collection", a.onceUp(a.imageGC.Run)) // waits until it is known what is in use
	g.start("probes", a.prober.Run)
	g.start("observed", a.observed.Run) // what runs must be known before it is compared
	g.start("logs", a.onceUp(a.rotator.Run))
	a.runner.CheckHostDNS()
	g.start("pods", a.syncer.Run) // before the sources: the first pod wakes a worker
	if a.mover != nil {
		g.start("CPUs", a.onceSeen(a.mover.Run)) // acts on what the runtime was seen to run
	}
	g.start("desired", a.desired.Run)
	if a.cgroups != nil {
		g.start("cgroups", a.onceSettled(a.podCgroups.Run)) // before that, pods would be missing from the account
	}
	g.start("orphans", a.adoptOrphans)
	g.start("shutdown", a.onceUp(a.leaving.Run)) // ends pods of all that is above
	if run := a.links.Netfilter; run != nil && *a.cfg.Kubelet.MakeIPTablesUtilChains {
		g.start("packet filter", netfilter.New(netfilter.Config{Exec: run, Log: a.log}).Run)
	}
	g.start("eviction", a.evictor.Run) // looks from the first, and acts when it is known what runs
	if open := a.links.Kmsg; open != nil {
		g.start("kernel log", a.onceUp(oom.New(oom.Config{Open: open, OnKill: oom.Tell(a.events), Log: a.log}).Run))
	}
	if a.links.KeepPlace != nil {
		g.start("process", a.links.KeepPlace)
	}
	g.start("memory", a.tidy)
	g.start("runtime calls", a.runtime.Run) // ends first: those under way have a bounded time from then on
}

// onceUp holds a part back until the runtime has said for the first time that it
// is well: before that there is nothing for it to look after, and it would act on
// half a picture.
func (a *agent) onceUp(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.node.RuntimeUp():
			return run(ctx)
		}
	}
}

// onceSettled holds a part back until every source of pods has spoken.
func (a *agent) onceSettled(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.settled:
			return run(ctx)
		}
	}
}

// onceSeen holds a part back until it is known what runs.
func (a *agent) onceSeen(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.observed.Synced():
			return run(ctx)
		}
	}
}

// adoptOrphans has what pods of earlier times left on the node looked after,
// once it is known which pods are wanted.
func (a *agent) adoptOrphans(ctx context.Context) error {
	// Workers do nothing before the runtime was listed, and end nothing before all
	// sources have spoken: each of the two is news to every pod.
	for _, news := range []<-chan struct{}{a.observed.Synced(), a.desired.ReadyC()} {
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
		a.syncer.WakeAll()
	}
	close(a.settled)
	a.lasting.Settle()
	uids, err := a.volumes.Orphans(a.syncer.Knows)
	if err != nil {
		a.log.Warn("cannot look for directories of earlier pods", "err", err)
	}
	if a.cgroups != nil {
		left, err := a.cgroups.List()
		if err != nil {
			a.log.Warn("cannot look for cgroups of earlier pods", "err", err)
		}
		uids = append(uids, left...)
	}
	logged, err := a.podDirs().Logged(a.syncer.Knows)
	if err != nil {
		a.log.Warn("cannot look for logs of earlier pods", "err", err)
	}
	a.syncer.Adopt(append(uids, logged...))
	if err := a.runner.RemoveDeadLinks(a.liveLogs()); err != nil {
		a.log.Warn("cannot remove links to logs that are gone", "err", err)
	}
	a.allocation.Prune(a.syncer.Knows)
	a.resources.Prune(a.syncer.Knows)
	a.claims.Prune(a.syncer.Knows)
	<-ctx.Done()
	return nil
}

// buildGround prepares directories and reads the machine.
func (a *agent) buildGround(context.Context) error {
	f := &a.cfg.Flags
	devicePlugins, err := devicePluginDir(f.RootDir)
	if err != nil {
		return err
	}
	at := places{
		root:          f.RootDir,
		devicePlugins: devicePlugins,
		certs:         f.CertDir,
		podLogs:       a.cfg.Kubelet.PodLogsDir,
		containerLogs: a.containerLogsDir(),
	}
	if err := makeRootDirs(at, labeller(), a.log); err != nil {
		return err
	}
	if err := shareMounts(f.RootDir); err != nil {
		return err
	}
	if a.machine, err = machine.Read(a.host()); err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	return a.reserve()
}

// reserve adds up what is kept from pods.
func (a *agent) reserve() error {
	k := &a.cfg.Kubelet
	var err error
	if a.reserved, err = reservations(k.SystemReserved, k.KubeReserved); err != nil {
		return err
	}
	if list := k.ReservedSystemCPUs; list != "" {
		// Whole CPUs are kept, whatever amounts are named beside them.
		a.reserved[v1.ResourceCPU] = *apiresource.NewQuantity(int64(config.CountCPUs(list)), apiresource.DecimalSI)
	}
	return nil
}

// reservations is the sum of what is kept from pods.
func reservations(lists ...map[string]string) (v1.ResourceList, error) {
	sum := v1.ResourceList{}
	for _, list := range lists {
		for name, text := range list {
			q, err := apiresource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserve %s %q: %w", name, text, err)
			}
			have := sum[v1.ResourceName(name)]
			have.Add(q)
			sum[v1.ResourceName(name)] = have
		}
	}
	return sum, nil
}

// buildRuntime connects to the container runtime and waits until it answers.
func (a *agent) buildRuntime(ctx context.Context) error {
	k := &a.cfg.Kubelet
	var err error
	cfg := cri.Config{RuntimeEndpoint: k.ContainerRuntimeEndpoint, ImageEndpoint: k.ImageServiceEndpoint,
		RequestTimeout: k.RuntimeRequestTimeout.Duration, Observe: runtimeMetrics(a.metrics),
		StreamLists: a.cfg.Gates.Enabled("CRIListStreaming"), Log: a.log}
	if a.spans != nil {
		cfg.Wrap = a.spans.Calls
	}
	if a.runtime, err = a.links.dialRuntime(cfg); err != nil {
		return err
	}
	if a.identity, err = a.runtime.Handshake(ctx); err != nil {
		return err
	}
	a.log.Info("container runtime answers", "runtime", a.identity.Name, "version", a.identity.Version)
	if a.identity.Ageing {
		a.metrics.MustRegister(runtimeAgeing())
		a.log.Warn("the container runtime does not tell its cgroup driver: the configuration's counts, and a coming release will not run on it",
			"cgroupDriver", k.CgroupDriver, "release", losingSupport)
	}
	if !*k.CgroupsPerQOS {
		return nil
	}
	groups, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if lack := groups.Lack(); lack != "" {
		a.log.Warn("the kernel is too old for cgroup v2", "lacks", lack)
	}
	driver := cgroupDriver(k.CgroupDriver, a.identity)
	a.cgroups, err = cgroup.New(cgroup.Config{
		Driver:      driver,
		Root:        cgroupRoot(k),
		Hierarchies: groups,
		Observe:     cgroupMetrics(a.metrics),
		Pod: cgroup.PodOptions{
			CFSQuota:      *k.CPUCFSQuota,
			CFSPeriod:     k.CPUCFSQuotaPeriod.Duration,
			PIDs:          *k.PodPidsLimit,
			PageSizes:     a.machine.PageSizes(),
			ExclusiveCPUs: a.hasOwnCPUs,
		},
	})
	if err != nil {
		return err
	}
	return a.cgroups.CheckRoot() // no pod could run without it
}

// cgroupRoot is the cgroup that holds those of the pods.
func cgroupRoot(k *v1beta1.KubeletConfiguration) string { return cmp.Or(k.CgroupRoot, "/") }

// cgroupDriver is who makes cgroups: what the runtime does goes, since both work in
// the same tree, and the configuration counts for a runtime that does not say.
func cgroupDriver(configured string, runtime cri.Identity) cgroup.Driver {
	if runtime.CgroupDriver != "" {
		return cgroup.Driver(runtime.CgroupDriver)
	}
	return cgroup.Driver(configured)
}

// buildAPI prepares the way to the API server, if there is one.
func (a *agent) buildAPI(ctx context.Context) error {
	if a.cfg.Standalone() {
		a.events = apiclient.LogEvents{Log: a.log}
		return nil
	}
	k := &a.cfg.Kubelet
	var err error
	cfg := apiclient.Config{Kubeconfig: a.cfg.Flags.Kubeconfig, QPS: unlimited(*k.KubeAPIQPS), Burst: int(k.KubeAPIBurst),
		EventQPS: unlimited(*k.EventRecordQPS), EventBurst: int(k.EventBurst), ContentType: k.ContentType, Version: a.cfg.Version,
		// A heartbeat that takes longer than that makes room for the next.
		Heartbeat: min(k.NodeStatusUpdateFrequency.Duration, time.Duration(k.NodeLeaseDurationSeconds)*time.Second)}
	if a.spans != nil {
		cfg.Wrap = a.spans.Transport
	}
	if a.api, err = a.dialAPI(ctx, cfg); err != nil {
		return err
	}
	a.recorder = apiclient.NewEvents(apiclient.EventsConfig{Client: a.api, Node: a.cfg.NodeName, Log: a.log})
	a.events = a.recorder
	for _, err := range a.spoilt {
		a.unusable(err)
	}
	a.spoilt = nil
	a.services = newServices(a.api)
	a.classes = newRuntimeClasses(a.api)
	return nil
}

// unlimited says "no limit" the way the client is told: zero means its default.
func unlimited(qps int32) float32 {
	if qps == 0 {
		return -1
	}
	return float32(qps)
}

func (a *agent) buildNode(context.Context) error {
	k, f := &a.cfg.Kubelet, &a.cfg.Flags
	if err := a.readThresholds(); err != nil {
		return err
	}
	nodeIPs, _ := a.cfg.NodeIPs()
	recorded, err := a.devicesRecorded()
	if err != nil {
		return err
	}
	cfg := node.Config{
		Identity: node.Identity{Name: a.cfg.NodeName, Hostname: a.cfg.NodeName, OS: a.machine.OS, Arch: a.machine.Arch, Labels: f.NodeLabels,
			Taints: k.RegisterWithTaints, ProviderID: k.ProviderID, External: f.CloudProvider == "external", ProvidedIP: providedIP(nodeIPs), AttachesItself: !*k.EnableControllerAttachDetach},
		Runtime: a.runtime, Events: a.events, Log: a.log,
		Machine: a.machine, RootFS: a.host(), RootDir: f.RootDir, Storage: *k.LocalStorageCapacityIsolation,
		NodeIPs: nodeIPs, MaxPods: int64(k.MaxPods), PodsPerCore: int64(k.PodsPerCore), Reserved: a.reserved,
		Kept:      a.keptFromEviction,
		Pressures: func(ctx context.Context) []v1.NodeConditionType { return a.evictor.Known(ctx) },
		Version:   a.cfg.Version, Port: k.Port, MaxImages: int(*k.NodeStatusMaxImages),
		UpdateEvery: k.NodeStatusUpdateFrequency.Duration, ReportEvery: k.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, Register: *k.RegisterNode,
		Checks:           []node.Check{{Name: "PLEG", Healthy: func() error { return a.observed.Healthy() }}},
		DeclaredFeatures: a.declaredFeatures,
		OnNetwork:        func() { a.syncer.WakeAll() },
		OnAddresses:      func() { a.syncer.WakeAll() },
		OnChange:         a.nodeChanged,
		Devices:          a.nodeDevices,
		VolumesInUse:     func() []v1.UniqueVolumeName { return a.lasting.InUse() },
		Problems:         a.problems,
		PodCIDR:          k.PodCIDR, Startup: a.startup, NoDeviceRecord: !recorded,
		Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
	if a.api != nil {
		cfg.API = &node.API{Nodes: a.api.Nodes, Leases: a.api.Leases, CloseConnections: a.api.CloseConnections}
	}
	// Also with cgroupsPerQOS off, since containers have cgroups then, too.
	if groups, err := cgroup.Detect(); err == nil {
		cfg.CgroupV1 = !groups.V2()
	}
	if a.cgroups != nil {
		cfg.Enforce, cfg.AllPods = a.enforce, a.cgroups.AllPods()
	}
	if a.node, err = node.New(cfg); err != nil || a.cgroups == nil {
		return err
	}
	// Before the first pod, whose cgroup goes below. Where it fails, the node says
	// so and tries again.
	if err := a.enforce(); err != nil {
		a.log.Warn("cannot make the cgroups above the pods", "err", err)
	}
	return a.limitReserved()
}

// providedIP is what a cloud's controller is told of --node-ip. It looks for just these
// addresses among its own, and a node whose annotation it cannot read is never
// initialised: 0.0.0.0 and ::, which choose a family, are not told.
func providedIP(ips []netip.Addr) string {
	var told []string
	for _, ip := range ips {
		if !ip.IsUnspecified() {
			told = append(told, ip.String())
		}
	}
	return strings.Join(told, ",")
}

func (a *agent) hierarchiesV2() bool {
	groups, err := cgroup.Detect()
	return err == nil && groups.V2()
}

// enforce makes the cgroups above the pods.
func (a *agent) enforce() error { return a.cgroups.EnsureRoot(a.forAllPods(a.node.Capacity())) }

// forAllPods is what pods may have together: what the machine has, and less than that
// where what is reserved is kept from them. Without any word on it the kernel would have
// them be worth no more than any single program beside them.
func (a *agent) forAllPods(capacity v1.ResourceList) cgroup.Values {
	kept := a.reserved
	if !slices.Contains(a.cfg.Kubelet.EnforceNodeAllocatable, "pods") {
		kept = nil
	}
	return cgroup.NodeValues(capacity, kept, a.machine.MaxPIDs)
}

// hostIPs are the node's addresses as text.
func (a *agent) hostIPs() []string {
	var out []string
	for _, ip := range a.node.HostIPs() {
		out = append(out, ip.String())
	}
	return out
}

// nodeIP is the first address of --node-ip; empty if there is none.
func (a *agent) nodeIP() string {
	if ips, _ := a.cfg.NodeIPs(); len(ips) > 0 {
		return ips[0].String()
	}
	return ""
}

// wake has one pod looked at.
func (a *agent) wake(uid types.UID) {
	a.lulls.stir()
	a.syncer.Wake(uid)
	a.leaving.Poke()
}

// minor is the agent's version as others are told it, such as 1.36.
func (a *agent) minor() string {
	parts := strings.SplitN(strings.TrimPrefix(a.cfg.Version, "v"), ".", 3)
	if len(parts) < 2 {
		return a.cfg.Version
	}
	return parts[0] + "." + parts[1]
}
