package persistent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/reconcile"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

var errStandalone = errors.New("no API server configured")

// API reads and writes claims and PersistentVolumes.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PatchClaimStatus applies a strategic merge patch.
	PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error)
}

// Config holds what Volumes are built from. Fields are required unless their comment says
// otherwise.
type Config struct {
	RootDir string
	Plugins []Plugin
	API     API // nil: standalone
	Guard   *mount.Guard
	Events  pod.Events
	// VolumeEvent records an event on a PersistentVolume; nil: not recorded.
	VolumeEvent func(pv *v1.PersistentVolume, eventType, reason, message string)
	// ClaimEvent records an event on a claim; nil: not recorded.
	ClaimEvent func(claim *v1.PersistentVolumeClaim, eventType, reason, message string)
	// Node returns the node status from the API server.
	Node func() v1.NodeStatus
	// NodeLabels returns the node's labels from the API server. It waits until they are known or
	// ctx ends.
	NodeLabels func(ctx context.Context) (map[string]string, error)
	// Attach is set if the attach/detach controller attaches volumes.
	Attach bool
	// Recheck is the period in which claims are read again to detect expansions.
	Recheck time.Duration
	// OnInUse is called when the result of InUse has changed. It must not block.
	OnInUse func()
	// Again retries a pod's volumes that wait. It must not block.
	Again func(types.UID)
	// Count counts each attempt to unstage; nil: not counted. It must not block.
	Count func(plugin string, migrated bool, operation string, took time.Duration, err error)
	// Labels computes SELinux labels; nil if SELinux is disabled.
	Labels Labels
	// LabelAll is set if all volumes that support it are mounted with a label, not only
	// ReadWriteOncePod ones (gate SELinuxMount).
	LabelAll bool
	Log      *slog.Logger
}

// Volumes are the persistent volumes of the node.
type Volumes struct {
	cfg      Config
	labelled *labelMetrics
	unstages *reconcile.Reconciler[string] // of devices, by ID
	scan     func()                        // reads the records, once

	mu      sync.Mutex
	devices map[string]*device
	holds   map[hold]string    // ID of the device; empty for volumes without one
	have    map[hold]Published // published by this process
	settled bool               // all wanted pods are known
	partial bool               // some records could not be read
}

// New makes Volumes. They do nothing before Run.
func New(cfg Config) *Volumes {
	v := &Volumes{
		cfg:      cfg,
		labelled: newLabelMetrics(),
		devices:  map[string]*device{},
		holds:    map[hold]string{},
		have:     map[hold]Published{},
	}
	v.unstages = reconcile.New(reconcile.Config[string]{
		Part:    "persistent volumes",
		Lock:    &v.mu,
		Begin:   v.beginUnstageLocked,
		Backoff: volume.Backoff,
		Log:     cfg.Log,
	})
	v.scan = sync.OnceFunc(v.readDisk)
	return v
}

// Kinds returns the volume kinds: for claims, for in-tree cloud volumes, and for each plugin.
func (v *Volumes) Kinds() []volume.Kind {
	kinds := []volume.Kind{claimKind{v}, migratedKind{v}}
	for _, p := range v.cfg.Plugins {
		kinds = append(kinds, pluginKind{v, p})
	}
	return kinds
}

// Run unstages volumes that no pod holds until ctx ends, and returns when no work is under way.
func (v *Volumes) Run(ctx context.Context) error {
	v.scan()
	v.mu.Lock()
	for _, d := range v.devices {
		v.requestUnstageLocked(d)
	}
	v.mu.Unlock()
	v.unstages.Start(ctx)
	<-ctx.Done()
	v.unstages.Wait()
	return nil
}

// Settle is called when all wanted pods are known. From then on, volumes staged by earlier agents
// that none of them holds are unstaged.
func (v *Volumes) Settle() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.settled = true
	for _, d := range v.devices {
		v.requestUnstageLocked(d)
	}
}

// InUse returns the attachable volumes that must not be detached from this node.
func (v *Volumes) InUse() []v1.UniqueVolumeName {
	v.scan()
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []v1.UniqueVolumeName // nil for none, as in the API
	for id, d := range v.devices {
		if d.dev.Attach {
			names = append(names, v1.UniqueVolumeName(id))
		}
	}
	if v.partial {
		// A record that cannot be read may be of any of them.
		for _, id := range v.cfg.Node().VolumesInUse {
			if v.devices[string(id)] == nil {
				names = append(names, id)
			}
		}
	}
	slices.Sort(names)
	return names
}

// NodeChanged retries the pods that wait for a change of the node status.
func (v *Volumes) NodeChanged() {
	status := v.cfg.Node()
	var pods []types.UID
	v.mu.Lock()
	for _, d := range v.devices {
		if len(d.waiting) == 0 {
			continue
		}
		if _, w := attachment(status, d.dev.ID); w == nil {
			for uid := range d.waiting {
				pods = append(pods, uid)
			}
			clear(d.waiting)
		}
	}
	v.mu.Unlock()
	for _, uid := range pods {
		v.cfg.Again(uid)
	}
}

// attachment returns the device path of an attached volume, or what to wait for. The volume must be
// in the node's volumesInUse before it is used: from then on the controller does not detach it.
func attachment(status v1.NodeStatus, id string) (path string, w *volume.Waiting) {
	if !slices.Contains(status.VolumesInUse, v1.UniqueVolumeName(id)) {
		return "", &volume.Waiting{
			For:    "volume to be added to the list of VolumesInUse in the node's volume status",
			Attach: true,
		}
	}
	for _, a := range status.VolumesAttached {
		if a.Name == v1.UniqueVolumeName(id) {
			return a.DevicePath, nil
		}
	}
	return "", &volume.Waiting{For: "volume to be attached according to node status", Attach: true}
}

// readDisk reads the records that earlier agents left.
func (v *Volumes) readDisk() {
	fail := func(what string, err error) {
		v.partial = true
		v.cfg.Log.Error("failed to read records of volumes in use, no volume is reported as unused", "reading", what,
			"err",
			err)
		v.cfg.Events.Node(v1.EventTypeWarning, checkpoint.EventUnusable,
			fmt.Sprintf("Volumes stay in use until this can be read and the agent is restarted: read %s: %v", what,
				err))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	plugins := map[string]Plugin{}
	for _, p := range v.cfg.Plugins {
		plugins[p.Name()] = p
		list, err := p.Devices()
		if err != nil {
			fail(p.Name(), err)
		}
		for _, dev := range list {
			d := v.deviceLocked(p, dev)
			d.staging = maybeStaged
			v.foundLocked(d, dev.Label)
		}
	}
	uids, err := volume.PodsOn(v.cfg.RootDir)
	if err != nil {
		fail("pods", err)
	}
	for _, uid := range uids {
		for _, block := range []bool{false, true} {
			found, err := volume.FoundOn(v.cfg.RootDir, uid, block)
			if err != nil {
				fail("pod "+string(uid), err)
			}
			for _, f := range found {
				p := plugins[f.Plugin()]
				if p == nil {
					continue
				}
				traits, err := p.DeviceOf(f.Place)
				if err != nil {
					fail(f.Path, err)
					continue
				}
				h := hold{uid, p.Name(), f.Name, block}
				v.holds[h] = traits.ID
				if traits.ID != "" {
					d := v.deviceLocked(p, Device{Traits: traits, Name: f.Name, Block: block})
					d.holders[h] = published
					v.foundLocked(d, traits.Label)
				}
			}
		}
	}
}
