package app

import (
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/api/client"
	"keelson/internal/api/objectcache"
	"keelson/internal/api/watch"
	"keelson/internal/host/plugin"
	"keelson/internal/pods/podsync/handlers"
	"keelson/internal/runtime/image"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/builtin"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/csi"
	"keelson/internal/storage/volume/persistent/hostpath"
	"keelson/internal/storage/volume/persistent/local"
	"keelson/internal/storage/volume/persistent/nfs"
	"keelson/internal/storage/volume/persistent/san"
)

// objects are ConfigMaps, Secrets and tokens that pods refer to.
type objects struct {
	store  *objectcache.Store
	tokens *objectcache.Tokens
}

func newObjects(g *ground, s *apiserver, n *nodes) *objects {
	detect := objectcache.Detection(g.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy)
	store := objectcache.Config{
		Detect: detect,
		Period: objectcache.Period(detect, g.cfg.Kubelet.SyncFrequency.Duration, n.Node.Node),
		OnChange: func(pods []types.UID, kind objectcache.Kind, _, name string) {
			g.mounts.ObjectChanged(pods, string(kind), name)
		},
		Log: g.log,
	}
	tokens := objectcache.TokensConfig{Now: time.Now, Log: g.log}
	if s.client != nil {
		store.Client, tokens.Client = s.client.Core(), s.client.Core()
	}
	return &objects{store: objectcache.New(store), tokens: objectcache.NewTokens(tokens)}
}

// volumes are the volumes of pods. What depends on the API server is nil on a standalone node.
type volumes struct {
	manager    *volume.Manager
	persistent *persistent.Volumes
	plugins    *plugin.Watcher
	csi        csiParts
	trust      trust
}

// csiParts are the CSI drivers, and what they depend on at the API server.
type csiParts struct {
	drivers   *csi.Drivers
	node      *csi.NodeInfoManager
	objects   *watch.Lazy[*storagev1.CSIDriver]
	refresher *csi.Refresher
}

// trust holds the trust bundles and pod certificates for projected volumes; each is nil if its gate is off.
type trust struct {
	bundles  *watch.Lazy[*certificatesv1beta1.ClusterTrustBundle]
	requests *objectcache.CertificateRequests
	held     *objectcache.Certificates
}

func newVolumes(
	g *ground, s *apiserver, n *nodes, m *managers, o *objects, pulls image.ForPods, able handlers.Handlers,
) *volumes {
	guard := mount.NewGuard()
	v := &volumes{csi: newCSI(g, s, n), trust: newTrust(g, s, n)}
	v.persistent = newPersistent(g, s, n, guard, v.csi.plugin(g, s, n, o, guard))
	local := builtin.Config{
		Objects:     o.store,
		Tokens:      o.tokens,
		Allocatable: n.Allocatable,
		Guard:       guard,
		Image:       pulls.Volume,
	}
	if v.trust.bundles != nil {
		local.Bundles = v.trust.bundles
	}
	if v.trust.held != nil {
		local.Certificates = v.trust.held
	}
	v.manager = volume.New(volume.Config{
		RootDir:           g.cfg.Flags.RootDir,
		Guard:             guard,
		Events:            s.events,
		OnChange:          g.workers.Wake,
		Log:               g.log,
		MaySwap:           mount.MaySwap,
		StatsPeriod:       g.cfg.Kubelet.VolumeStatsAggPeriod.Duration,
		Kinds:             append(v.persistent.Kinds(), builtin.New(local)...),
		RecursiveReadOnly: able.RecursiveReadOnly,
	})
	g.mounts.Connect(v.manager)
	v.csi.drivers.OnRegister(func(name string) {
		v.manager.DriverRegistered(name)
		v.persistent.DriverRegistered()
	})
	v.trust.connect(v.manager)
	v.plugins = newPlugins(g, m, v.csi.drivers)
	g.metrics.MustRegister(v.persistent, v.manager, v.plugins)
	return v
}

// newPlugins creates the watcher for plugins that register.
func newPlugins(g *ground, m *managers, drivers *csi.Drivers) *plugin.Watcher {
	cfg := plugin.Config{
		Dir:   g.path("plugins_registry"),
		Watch: !g.links.NoFileWatch,
		Log:   g.log,
		Handlers: map[string]plugin.Handler{
			plugin.CSI:    drivers,
			plugin.Device: m.devices,
			plugin.DRA:    m.claimDrivers,
		},
	}
	if s := g.links.Sockets; s != nil {
		cfg.Dial = s.Dial
	}
	return plugin.New(cfg)
}

// newCSI creates the table of CSI drivers, and the parts that connect it with the API server.
func newCSI(g *ground, s *apiserver, n *nodes) csiParts {
	observe := csi.NewMetrics(g.metrics)
	if s.client == nil {
		return csiParts{drivers: csi.NewDrivers(nil, observe, g.log)}
	}
	name := g.cfg.NodeName
	c := csiParts{
		node: csi.NewNodeInfoManager(client.OneNode{Client: s.client, Name: name}, name, n.Registered(), n.Wake, g.log),
		objects: watch.NewLazy(s.client.CSIDrivers.ListWatch("", fields.Everything()),
			&storagev1.CSIDriver{}),
	}
	c.drivers = csi.NewDrivers(c.node, observe, g.log)
	c.refresher = csi.NewRefresher(csi.RefresherConfig{Drivers: c.drivers, Object: c.objects.Get, Log: g.log})
	c.drivers.OnChange(c.refresher.Changed)
	c.objects.OnChange(func(*storagev1.CSIDriver, bool) { c.refresher.Changed() })
	return c
}

// plugin mounts volumes of CSI drivers.
func (c csiParts) plugin(g *ground, s *apiserver, n *nodes, o *objects, guard *mount.Guard) persistent.Plugin {
	cfg := csi.Config{
		RootDir:   g.cfg.Flags.RootDir,
		Node:      g.cfg.NodeName,
		Drivers:   c.drivers,
		Tokens:    o.tokens,
		Guard:     guard,
		InUse:     func() []v1.UniqueVolumeName { return n.status().VolumesInUse },
		Republish: g.cfg.Kubelet.SyncFrequency.Duration,
		Health:    g.Enabled("CSIVolumeHealth"),
		Sharing:   volume.Ownership{Guard: guard, Events: s.events},
		HasLabels: mount.HasLabels,
		Log:       g.log,
	}
	if s.client != nil {
		cfg.API = csi.NewAPI(s.client, c.objects)
		cfg.Exhausted = c.refresher.Exhausted
	}
	return csi.New(cfg)
}

// newPersistent creates the manager of volumes that outlive pods. A new plugin is an entry of the list.
func newPersistent(
	g *ground, s *apiserver, n *nodes, guard *mount.Guard, drivers persistent.Plugin,
) *persistent.Volumes {
	root, sharing := g.cfg.Flags.RootDir, volume.Ownership{Guard: guard, Events: s.events}
	disks := san.Config{RootDir: root, Guard: guard, Sharing: sharing}
	if s.client != nil {
		disks.Secret = s.client.Secrets.Get
	}
	cfg := persistent.Config{
		RootDir: root,
		Guard:   guard,
		Events:  s.events,
		Log:     g.log,
		Plugins: []persistent.Plugin{
			drivers,
			local.New(local.Config{RootDir: root, Guard: guard, Events: s.events}),
			hostpath.New(guard),
			nfs.New(nfs.Config{Guard: guard}),
			san.NewISCSI(disks),
			san.NewFC(disks),
		},
		Node:       n.status,
		NodeLabels: n.Labels,
		Attach:     *g.cfg.Kubelet.EnableControllerAttachDetach,
		Labels:     g.links.labels(),
		LabelAll:   g.Enabled("SELinuxMount"),
		Recheck:    g.cfg.Kubelet.SyncFrequency.Duration,
		OnInUse:    n.Wake,
		Again:      g.mounts.Again,
		Count:      g.mounts.Count,
	}
	if s.client != nil {
		cfg.API = client.VolumeClaims{Client: s.client}
		cfg.VolumeEvent, cfg.ClaimEvent = s.recorder.Volume, s.recorder.Claim
	}
	return persistent.New(cfg)
}

func newTrust(g *ground, s *apiserver, n *nodes) trust {
	var t trust
	if s.client == nil {
		return t
	}
	if g.Enabled("ClusterTrustBundleProjection") {
		t.bundles = watch.NewLazy(s.client.ClusterTrustBundles.ListWatch("", fields.Everything()),
			&certificatesv1beta1.ClusterTrustBundle{})
	}
	if g.Enabled("PodCertificateRequest") {
		t.requests = objectcache.NewCertificateRequests(s.client, g.cfg.NodeName)
		t.held = objectcache.NewCertificates(objectcache.CertificatesConfig{
			API:      t.requests,
			Node:     n.Node.Node,
			Events:   s.events,
			OnAnswer: g.mounts.CertificateChanged,
			Now:      time.Now,
			Log:      g.log,
		})
		t.requests.OnAnswer(t.held.Seen)
		g.metrics.MustRegister(t.held)
	}
	return t
}

// connect refreshes projected volumes when a trust bundle changes.
func (t trust) connect(v *volume.Manager) {
	if t.bundles != nil {
		t.bundles.OnChange(func(*certificatesv1beta1.ClusterTrustBundle, bool) {
			v.SharedChanged(volume.Object{Kind: volume.TrustBundle})
		})
	}
}
