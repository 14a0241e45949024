package app

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/podsync"
	"keelson/internal/pods/probe"
	"keelson/internal/pods/status"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/logs"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/object"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/builtin"
)

const (
	// probeWorkers bounds probes under way at once; most of them wait.
	probeWorkers = 256
	// statusWorkers bounds status writes under way at once; the client's own
	// rate bounds how many there are in a second.
	statusWorkers = 16
)

// buildPods builds what stands between the sources and the runtime.
func (a *agent) buildPods(ctx context.Context) error {
	a.buildPodsAPI()
	a.buildDesired()
	a.observed = observed.New(observed.Config{Runtime: a.runtime, OnChange: func(uid types.UID) { a.wake(uid); a.moveContainers() }, Log: a.log, Now: time.Now})
	a.metrics.MustRegister(a.observed)
	if err := a.buildUsers(ctx); err != nil {
		return err
	}
	if err := a.buildDevices(ctx); err != nil { // plugins of all types register with storage
		return err
	}
	a.buildClaims()
	a.buildStorage()
	if err := a.buildImages(); err != nil {
		return err
	}
	if err := a.buildContainers(); err != nil {
		return err
	}
	if err := a.buildRotation(); err != nil {
		return err
	}
	a.prober = probe.New(probe.Config{Exec: executor{a.runtime}, Events: a.events, OnChange: a.wake, Workers: probeWorkers,
		Version: a.minor(), Log: a.log, Now: time.Now})
	writer := status.Config{
		Node:     a.shownNode(),
		Parallel: statusWorkers,
		OnChange: a.tellOfPod,
		Events:   a.events,
		Log:      a.log,
		Now:      time.Now,
	}
	if a.api != nil {
		writer.API = statusAPI{a.api.Pods}
	}
	a.statuses = status.NewWriter(writer)
	if err := a.buildResources(ctx); err != nil {
		return err
	}
	a.buildAllocation()
	a.buildPodResources()
	a.podCgroups = &cgroups{tree: a.cgroups, users: a.users, account: a.allocation.Account, burstable: map[types.UID]*v1.Pod{}, log: a.log}
	a.syncer = podsync.New(podsync.Config{
		Desired: a.desired, Observed: a.observed, Containers: starts{a.runner, a.node.RuntimeAnswered()},
		Images:  a.images,
		Volumes: a.volumes, Claims: a.claims, Objects: a.objects, Cgroups: a.podCgroups, Probes: probes{a.prober}, Status: a.statuses,
		Allocation: a.allocation, Resources: a.resources, NetworkReady: a.node.NetworkReady, HostIPs: a.hostIPs, AddressMismatch: a.node.AddressMismatch, Events: a.events,
		NodeIP:       a.nodeIP(),
		Dirs:         a.podDirs(),
		Backoff:      a.crashBackoff(),
		RestartAll:   a.cfg.Gates.Enabled("RestartAllContainersOnContainerExits"),
		KeepEnded:    int(a.cfg.Flags.EndedInstances),
		Leaving:      func() bool { return a.leaving.Resumed() },
		TurnPatience: turnPatience(a.cfg.Kubelet.SyncFrequency.Duration),
		OnNameFree:   a.desired.PokeMirrors, Tracer: a.tracer(), Log: a.log, Now: time.Now,
	})
	a.metrics.MustRegister(a.syncer, a.statuses)
	a.buildShutdown()
	return nil
}

// crashBackoff is how long containers that crash are held back.
func (a *agent) crashBackoff() podplan.BackoffLimits {
	longest := podplan.DefaultBackoff.Max
	if a.cfg.Gates.Enabled("KubeletCrashLoopBackOffMax") {
		longest = a.cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	}
	return podplan.Limits(longest, a.cfg.Gates.Enabled("ReduceDefaultCrashLoopBackOffDecay"))
}

func (a *agent) buildDesired() {
	k := &a.cfg.Kubelet
	manifest := desired.Manifest{NodeName: a.cfg.NodeName, AllowAPIReferences: !a.cfg.Gates.Enabled("PreventStaticPodAPIReferences"),
		MountSELinux: a.cfg.Gates.Enabled("SELinuxMount")}
	var sources []desired.Source
	if k.StaticPodPath != "" {
		sources = append(sources, desired.NewFiles(desired.FilesConfig{Path: k.StaticPodPath, Period: k.FileCheckFrequency.Duration,
			Watch: !a.links.NoFileWatch, Changes: a.links.ManifestChanges, Manifest: manifest, Events: a.events, Log: a.log}))
	}
	if k.StaticPodURL != "" {
		sources = append(sources, desired.NewURL(desired.URLConfig{URL: k.StaticPodURL, Header: k.StaticPodURLHeader,
			Period: k.HTTPCheckFrequency.Duration, Manifest: manifest, Log: a.log}))
	}
	cfg := desired.Config{NodeName: a.cfg.NodeName, Events: a.events, OnChange: func(uid types.UID) { a.tellOfPod(uid); a.wake(uid) }, OnUpdate: a.tellOfLack,
		OnForced: func(uid types.UID) { a.syncer.Force(uid) }, OnHeard: func() { a.syncer.WakeAll() }, Log: a.log}
	if a.api != nil {
		mine := fields.OneTermEqualSelector("spec.nodeName", a.cfg.NodeName)
		sources = append(sources, desired.NewAPI(desired.APIConfig{Pods: a.api.Pods.ListWatch("", mine), After: a.node.Registered(), Log: a.log}))
		cfg.Mirrors = &desired.MirrorConfig{API: a.api.Pods,
			Busy:  func(name string) bool { return a.syncer.Holds(name) },
			Older: func(name string, than types.UID) bool { return a.syncer.HoldsOlder(name, than) },
			Node: func() (*v1.Node, bool) {
				n := a.node.Node()
				return n, n.UID != ""
			}}
	}
	cfg.Sources = sources
	a.desired = desired.New(cfg)
}

func (a *agent) buildStorage() {
	guard := mount.NewGuard()
	objects := object.Config{Log: a.log, Detect: object.Detection(a.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy), Period: a.objectPeriod, OnChange: func(pods []types.UID, kind object.Kind, _, name string) {
		a.volumes.ObjectChanged(pods, string(kind), name)
		for _, uid := range pods {
			a.wake(uid) // a container may wait for it
		}
	}}
	tokens := object.TokensConfig{Now: time.Now, Log: a.log}
	if a.api != nil {
		objects.Client, tokens.Client = a.api.Core(), a.api.Core()
	}
	a.objects = object.New(objects)
	a.tokens = object.NewTokens(tokens)
	a.buildPersistent(guard)
	local := builtin.Config{Objects: a.objects, Tokens: a.tokens, Allocatable: a.node.Allocatable, Guard: guard,
		Image: func(ctx context.Context, p *v1.Pod, v *v1.Volume) (string, error) { return a.images.Volume(ctx, p, v) }}
	a.buildTrust(&local)
	a.volumes = volume.New(volume.Config{RootDir: a.cfg.Flags.RootDir, Guard: guard, Events: a.events, OnChange: a.wake, Log: a.log, MaySwap: mount.MaySwap,
		StatsPeriod:       a.cfg.Kubelet.VolumeStatsAggPeriod.Duration,
		Kinds:             append(a.lasting.Kinds(), builtin.New(local)...),
		RecursiveReadOnly: a.recursiveReadOnly})
	a.metrics.MustRegister(a.volumes)
}

func (a *agent) buildContainers() error {
	k := &a.cfg.Kubelet
	nodeIPs, _ := a.cfg.NodeIPs()
	cfg := container.Config{
		Runtime: a.runtime, Events: a.events, Node: a.nodeFacts, Kernel: a.kernel(),
		DNS: container.DNSConfig{
			ClusterDNS:    a.clusterDNS(),
			ClusterDomain: k.ClusterDomain,
			ResolvConf:    *k.ResolverConfig,
			NodeIPs:       nodeIPs,
		},
		RootDir: a.cfg.Flags.RootDir, PodLogsDir: k.PodLogsDir, ContainerLogsDir: a.containerLogsDir(),
		VolumeGroups: a.volumes.Groups,
		CgroupParent: a.cgroupParent, UserNamespace: a.userNamespace, RuntimeHandler: a.classes.Handler,
		CPUQuota: *k.CPUCFSQuota, CPUQuotaPeriod: k.CPUCFSQuotaPeriod.Duration, SwapBehavior: k.MemorySwap.SwapBehavior,
		SingleProcessOOM: k.SingleProcessOOMKill != nil && *k.SingleProcessOOMKill, SeccompDefault: *k.SeccompDefault || a.cfg.Flags.SeccompDefault,
		ExclusiveCPUs:       a.unlimitedCPUs,
		ContainerStopSignal: a.cfg.Gates.Enabled("ContainerStopSignals"), Version: a.minor(), Registry: a.metrics, Log: a.log, Now: time.Now,
		Processors: a.links.Processors,
	}
	if a.api != nil {
		cfg.Objects, cfg.Services = a.objects, a.services
	}
	var err error
	a.runner, err = container.New(cfg)
	return err
}

// containerLogsDir is where the older names of logs stand. They follow the pod
// log directory where that is not the usual one: two agents on one machine must
// not write each other's.
func (a *agent) containerLogsDir() string {
	if dir := a.cfg.Kubelet.PodLogsDir; dir != logs.DefaultPodLogsDir {
		return filepath.Join(filepath.Dir(filepath.Clean(dir)), "containers")
	}
	return logs.ContainerLogsDir
}

func (a *agent) cgroupParent(p *v1.Pod) string {
	if a.cgroups == nil {
		return ""
	}
	return a.cgroups.Parent(p)
}

func (a *agent) nodeFacts() container.NodeFacts {
	return container.NodeFacts{Name: a.cfg.NodeName, HostIPs: a.hostIPs(), Addresses: a.node.Addresses(), Allocatable: a.node.Allocatable(),
		Memory: int64(a.machine.Memory), Swap: int64(a.machine.Swap)}
}

// clusterDNS are the resolvers of the cluster that are addresses.
func (a *agent) clusterDNS() []string {
	var out []string
	for _, text := range a.cfg.Kubelet.ClusterDNS {
		ip := netutils.ParseIPSloppy(text) // with leading zeros too, as the API takes them
		if ip == nil {
			a.log.Warn("invalid clusterDNS ip, it is ignored", "ip", text)
			continue
		}
		out = append(out, ip.String())
	}
	return out
}

func (a *agent) podDirs() podDirs {
	return podDirs{
		root:      a.cfg.Flags.RootDir,
		logRoot:   a.cfg.Kubelet.PodLogsDir,
		links:     a.containerLogsDir(),
		removeDir: a.volumes.RemoveDir,
	}
}
