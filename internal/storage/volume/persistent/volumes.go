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

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

var errStandalone = errors.New("no API server configured")

// API is what is read and written of claims and their volumes.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PatchClaimStatus applies a strategic merge patch.
	PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error)
}

// Config holds what Volumes are built from. Fields are required unless they say
// otherwise.
type Config struct {
	RootDir string
	Plugins []Plugin
	API     API // nil: standalone
	Guard   *mount.Guard
	Events  pod.Events
	// VolumeEvent records what happens to a volume where its owner looks for it; nil:
	// nobody is told.
	VolumeEvent func(pv *v1.PersistentVolume, eventType, reason, message string)
	// ClaimEvent records what happens to a claim; nil: not recorded.
	ClaimEvent func(claim *v1.PersistentVolumeClaim, eventType, reason, message string)
	// Node is the status of the node as the API server last showed it.
	Node func() v1.NodeStatus
	// NodeLabels are the labels of the node at the API server. It waits until they are
	// known or ctx ends.
	NodeLabels func(ctx context.Context) (map[string]string, error)
	// Attach is whether a controller attaches volumes; without, none is waited for.
	Attach bool
	// Recheck is how often a claim is read again, to see whether it grew.
	Recheck time.Duration
	// OnInUse is called when the answer of InUse changed. It must not block.
	OnInUse func()
	// Again has a pod's volumes that wait looked at. It must not block.
	Again func(types.UID)
	// Count is called after each attempt at unstaging, with names of metrics; nil: they are
	// not counted. It must not block.
	Count func(plugin string, migrated bool, operation string, took time.Duration, err error)
	// Labels is the node's SELinux; nil: it has none.
	Labels Labels
	// LabelAll is whether all volumes are mounted with a label that can be, and not
	// only those for one pod (gate SELinuxMount).
	LabelAll bool
	Log      *slog.Logger
}

// Volumes are the persistent volumes of the node.
type Volumes struct {
	cfg      Config
	labelled *labelMetrics
	wg       sync.WaitGroup // unstaging under way
	scan     func()         // reads the disk, once

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before and after
	devices map[string]*device
	holds   map[hold]string    // ID of the device; empty for volumes without one
	have    map[hold]Published // by this agent, of volumes with a device
	settled bool               // it is known which pods are wanted
	partial bool               // the disk could not be read in full
	came    chan struct{}      // closed and replaced when a driver registers
}

// device is one volume of the node.
type device struct {
	plugin Plugin
	turn   chan struct{} // capacity 1; who has put in may speak about the volume

	// Guarded by Volumes.mu:
	dev     Device
	holders map[hold]bool           // true if the pod has it, or may have
	waiting map[types.UID]time.Time // since when
	staged  bool                    // in this process's life
	maybe   bool                    // some attempt at staging may have had an effect
	ending  bool                    // unstaging is under way
	label   string                  // that those who hold it have it mounted with
	has     string                  // that it is staged with, or may be
	later   *string                 // that who held it first would have, if all volumes had one
	counted bool                    // its label is
	refused map[types.UID]bool      // who wanted another label
	growth  growth

	migrated bool // it was staged as a migrated in-tree volume
}

// hold is one volume of one pod.
type hold struct {
	uid          types.UID
	plugin, name string
	block        bool
}

// New builds Volumes; nothing is done before Run.
func New(cfg Config) *Volumes {
	v := &Volumes{cfg: cfg, labelled: newLabelMetrics(), devices: map[string]*device{}, holds: map[hold]string{}, have: map[hold]Published{}, came: make(chan struct{})}
	v.scan = sync.OnceFunc(v.readDisk)
	return v
}

// Kinds are the entries for the table of volume kinds: one for claims, one for
// volumes of clouds, and one for each plugin.
func (v *Volumes) Kinds() []volume.Kind {
	kinds := []volume.Kind{claimKind{v}, cloudKind{v}}
	for _, p := range v.cfg.Plugins {
		kinds = append(kinds, pluginKind{v, p})
	}
	return kinds
}

// Run unstages what no pod holds until ctx ends, and returns once nothing is
// under way any more.
func (v *Volumes) Run(ctx context.Context) error {
	v.scan()
	v.mu.Lock()
	v.ctx = ctx
	for _, d := range v.devices {
		v.endLocked(d)
	}
	v.mu.Unlock()
	<-ctx.Done()
	v.mu.Lock()
	v.ctx = nil
	v.mu.Unlock()
	v.wg.Wait()
	return nil
}

// Settle says that it is known which pods are wanted. What earlier agents staged
// and none of them holds is unstaged from now on.
func (v *Volumes) Settle() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.settled = true
	for _, d := range v.devices {
		v.endLocked(d)
	}
}

// InUse are the attachable volumes that may not be detached from this node.
func (v *Volumes) InUse() []v1.UniqueVolumeName {
	v.scan()
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []v1.UniqueVolumeName // nil for none, as the API has it
	for id, d := range v.devices {
		if d.dev.Attach {
			names = append(names, v1.UniqueVolumeName(id))
		}
	}
	if v.partial {
		// What stands in a record that cannot be read may be any of them.
		for _, id := range v.cfg.Node().VolumesInUse {
			if v.devices[string(id)] == nil {
				names = append(names, id)
			}
		}
	}
	slices.Sort(names)
	return names
}

// NodeChanged has those pods looked at that waited for what the node now shows.
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

// attachment is what the controller says of a volume, or what to wait for. A
// volume must be seen to be in use before anything is done with it: from then on
// the controller does not detach it.
func attachment(status v1.NodeStatus, id string) (path string, w *volume.Waiting) {
	if !slices.Contains(status.VolumesInUse, v1.UniqueVolumeName(id)) {
		return "", &volume.Waiting{For: "volume to be added to the list of VolumesInUse in the node's volume status", Attach: true}
	}
	for _, a := range status.VolumesAttached {
		if a.Name == v1.UniqueVolumeName(id) {
			return a.DevicePath, nil
		}
	}
	return "", &volume.Waiting{For: "volume to be attached according to node status", Attach: true}
}

// readDisk takes over what earlier agents left.
func (v *Volumes) readDisk() {
	fail := func(what string, err error) {
		v.partial = true
		v.cfg.Log.Error("cannot tell which volumes are in use, none is given up", "reading", what, "err", err)
		v.cfg.Events.Node(v1.EventTypeWarning, checkpoint.EventUnusable,
			fmt.Sprintf("Volumes stay in use until this can be read and the agent is started anew: read %s: %v", what, err))
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
			d.maybe = true
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
					d.holders[h] = true
					v.foundLocked(d, traits.Label)
				}
			}
		}
	}
}

// deviceLocked finds a device, or begins to keep it.
func (v *Volumes) deviceLocked(p Plugin, dev Device) *device {
	d := v.devices[dev.ID]
	if d == nil {
		d = &device{plugin: p, turn: make(chan struct{}, 1), dev: dev, holders: map[hold]bool{}, waiting: map[types.UID]time.Time{}, refused: map[types.UID]bool{}}
		v.devices[dev.ID] = d
	}
	return d
}
