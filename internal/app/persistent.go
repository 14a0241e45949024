package app

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/apiclient"
	"keelson/internal/node/plugin"
	"keelson/internal/node/shutdown"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/csi"
	"keelson/internal/storage/volume/persistent/hostpath"
	"keelson/internal/storage/volume/persistent/local"
	"keelson/internal/storage/volume/persistent/nfs"
	"keelson/internal/storage/volume/persistent/san"
)

// buildPersistent builds what brings volumes to the node that outlive pods. A new
// plugin is an entry of the list.
func (a *agent) buildPersistent(guard *mount.Guard) {
	k := &a.cfg.Kubelet
	disks := san.Config{RootDir: a.cfg.Flags.RootDir, Guard: guard, Sharing: volume.Sharing{Guard: guard, Events: a.events}}
	if a.api != nil {
		disks.Secret = a.api.Secrets.Get
	}
	cfg := persistent.Config{RootDir: a.cfg.Flags.RootDir, Guard: guard, Events: a.events, Log: a.log,
		Plugins: []persistent.Plugin{
			a.buildCSI(guard),
			local.New(local.Config{RootDir: a.cfg.Flags.RootDir, Guard: guard, Events: a.events}),
			hostpath.New(guard),
			nfs.New(nfs.Config{Guard: guard}),
			san.NewISCSI(disks),
			san.NewFC(disks),
		},
		Node: func() v1.NodeStatus { return a.node.Node().Status },
		NodeLabels: func(ctx context.Context) (map[string]string, error) {
			select {
			case <-a.node.Registered(): // until then its labels are those of this agent's flags
				return a.node.Node().Labels, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Attach: *k.EnableControllerAttachDetach,
		Labels: a.links.labels(), LabelAll: a.cfg.Gates.Enabled("SELinuxMount"),
		Recheck: k.SyncFrequency.Duration,
		OnInUse: func() { a.node.Poke() },
		Again:   func(uid types.UID) { a.volumes.Again(uid) },
		Count: func(plugin string, migrated bool, operation string, took time.Duration, err error) {
			a.volumes.Count(plugin, migrated, operation, took, err)
		},
	}
	if a.api != nil {
		cfg.API = claims{a.api}
	}
	if events, ok := a.events.(*apiclient.Events); ok {
		cfg.VolumeEvent, cfg.ClaimEvent = events.Volume, events.Claim
	}
	a.lasting = persistent.New(cfg)
	a.metrics.MustRegister(a.lasting)
}

// buildCSI builds the way to CSI drivers, and what finds plugins of all types.
func (a *agent) buildCSI(guard *mount.Guard) persistent.Plugin {
	cfg := csi.Config{RootDir: a.cfg.Flags.RootDir, Node: a.cfg.NodeName, Tokens: a.tokens, Guard: guard,
		InUse:     func() []v1.UniqueVolumeName { return a.node.Node().Status.VolumesInUse },
		Republish: a.cfg.Kubelet.SyncFrequency.Duration, Health: a.cfg.Gates.Enabled("CSIVolumeHealth"), Log: a.log,
		Sharing: volume.Sharing{Guard: guard, Events: a.events}, HasLabels: mount.HasLabels,
	}
	observe := csiMetrics(a.metrics)
	if a.api == nil {
		cfg.Drivers = csi.NewDrivers(nil, observe, a.log)
	} else {
		a.csiNode = csi.NewShown(nodeShown{a.api, a.cfg.NodeName}, a.cfg.NodeName, a.node.Registered(), func() { a.node.Poke() }, a.log)
		a.csiDrivers = newLazyWatch(a.api.CSIDrivers.ListWatch("", fields.Everything()), &storagev1.CSIDriver{},
			func(*storagev1.CSIDriver, bool) { a.csiRefresh.Changed() })
		cfg.Drivers = csi.NewDrivers(a.csiNode, observe, a.log)
		cfg.API = csiObjects{a.api, a.csiDrivers}
		a.csiRefresh = csi.NewRefresher(csi.RefresherConfig{Drivers: cfg.Drivers, Object: a.csiDrivers.get, Log: a.log})
		cfg.Drivers.OnChange(a.csiRefresh.Changed)
		cfg.Exhausted = a.csiRefresh.Exhausted
	}
	cfg.Drivers.OnRegister(func(name string) {
		a.volumes.DriverCame(name)
		a.lasting.DriverCame()
	})
	plugins := plugin.Config{Dir: filepath.Join(a.cfg.Flags.RootDir, "plugins_registry"), Watch: !a.links.NoFileWatch, Log: a.log,
		Handlers: map[string]plugin.Handler{plugin.CSI: cfg.Drivers, plugin.Device: a.devices, plugin.DRA: a.claimDrivers}}
	if s := a.links.Sockets; s != nil {
		plugins.Dial = s.Dial
	}
	a.plugins = plugin.New(plugins)
	a.metrics.MustRegister(a.plugins)
	return csi.New(cfg)
}

// problems are reasons for the node not to be ready that other parts have.
func (a *agent) problems() []error {
	var out []error
	if a.csiNode != nil {
		if err := a.csiNode.Problem(); err != nil {
			out = append(out, err)
		}
	}
	if a.leaving.Leaving() {
		out = append(out, shutdown.ErrLeaving)
	}
	return out
}

// csiMetrics measures calls to CSI drivers.
func csiMetrics(reg *prometheus.Registry) csi.Observer {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "csi_operations_seconds",
		Help:    "Container Storage Interface operation duration with gRPC error code status total",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
	reg.MustRegister(h)
	return func(driver, method, code string, migrated bool, took time.Duration) {
		h.WithLabelValues(driver, "/csi.v1.Node/"+method, code, strconv.FormatBool(migrated)).Observe(took.Seconds())
	}
}

// claims are claims and their volumes at the API server.
type claims struct{ api *apiclient.Client }

func (c claims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return c.api.PersistentVolumeClaims.Get(ctx, namespace, name)
}

func (c claims) Volume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return c.api.PersistentVolumes.Get(ctx, "", name)
}

func (c claims) PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error) {
	return c.api.PersistentVolumeClaims.Patch(ctx, namespace, name, types.StrategicMergePatchType, patch, "status")
}

// csiObjects are what volumes of CSI drivers depend on.
type csiObjects struct {
	api     *apiclient.Client
	drivers *lazyWatch[*storagev1.CSIDriver]
}

func (o csiObjects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return o.drivers.get(ctx, name)
}

func (o csiObjects) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return o.api.VolumeAttachments.Get(ctx, "", name)
}

func (o csiObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return o.api.Secrets.Get(ctx, namespace, name)
}

// nodeShown is this node and its CSINode at the API server.
type nodeShown struct {
	api  *apiclient.Client
	name string
}

func (n nodeShown) Node(ctx context.Context) (*v1.Node, error) { return n.api.Nodes.Get(ctx, n.name) }

func (n nodeShown) PatchNode(ctx context.Context, patch []byte) error {
	_, err := n.api.Nodes.Patch(ctx, n.name, patch)
	return err
}

func (n nodeShown) CSINode(ctx context.Context) (*storagev1.CSINode, error) {
	return n.api.CSINodes.Get(ctx, "", n.name)
}

func (n nodeShown) CreateCSINode(ctx context.Context, obj *storagev1.CSINode) error {
	_, err := n.api.CSINodes.Create(ctx, "", obj)
	return err
}

func (n nodeShown) UpdateCSINode(ctx context.Context, obj *storagev1.CSINode) error {
	_, err := n.api.CSINodes.Update(ctx, "", n.name, obj)
	return err
}
