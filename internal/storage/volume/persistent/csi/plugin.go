package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

// API reads CSI objects from the API server.
type API interface {
	// CSIDriver returns nil if there is no such object.
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Tokens returns service account tokens bound to a pod.
type Tokens interface {
	Expiring(
		ctx context.Context, p *v1.Pod, audiences []string, seconds *int64,
	) (value string, expires time.Time, err error)
	Forget(types.UID)
}

// Config holds what a Plugin is built from. Fields are required unless their comment says
// otherwise.
type Config struct {
	RootDir string
	Node    string // the node's name
	Drivers *Drivers
	API     API // nil: standalone
	Tokens  Tokens
	Guard   *mount.Guard
	Sharing volume.Ownership
	// HasLabels reports whether the file system at a path supports SELinux labels.
	HasLabels func(path string) (bool, error)
	// InUse returns the volumes in the node status; nil if unknown.
	InUse func() []v1.UniqueVolumeName
	// Republish is the period of NodePublishVolume calls for drivers with requiresRepublish.
	Republish time.Duration
	// Health enables volume health from drivers (gate CSIVolumeHealth).
	Health bool
	// Exhausted is called if a driver's volume could not be attached because the node has too many.
	// It must not block.
	Exhausted func(driver string)
	Log       *slog.Logger
}

// Plugin serves volumes of CSI drivers.
type Plugin struct {
	cfg   Config
	paths paths
}

var (
	_ persistent.Plugin     = (*Plugin)(nil)
	_ persistent.Expander   = (*Plugin)(nil)
	_ persistent.Blocker    = (*Plugin)(nil)
	_ persistent.Attachable = (*Plugin)(nil)
	_ persistent.Labeller   = (*Plugin)(nil)
)

// New makes a Plugin.
func New(cfg Config) *Plugin { return &Plugin{cfg: cfg, paths: paths{cfg.RootDir}} }

// Name returns kubernetes.io/csi.
func (*Plugin) Name() string { return PluginName }

// Serves reports whether the volume is a CSI volume.
func (*Plugin) Serves(s persistent.Spec) bool {
	return s.PV != nil && s.PV.Spec.CSI != nil || s.Inline != nil && s.Inline.CSI != nil
}

// MapDir returns the directory in which the device of a block volume is mapped for each pod.
func (p *Plugin) MapDir(name string) string { return p.paths.blockMap(name) }

var errStandalone = errors.New("no API server configured")

// Describe returns the identity of the volume. Whether it has to be attached depends on the driver.
func (p *Plugin) Describe(ctx context.Context, s persistent.Spec) (persistent.Traits, error) {
	if s.Inline != nil {
		return persistent.Traits{}, nil
	}
	src := s.PV.Spec.CSI
	attach, err := p.attaches(ctx, src.Driver)
	return persistent.Traits{ID: uniqueName(src.Driver, src.VolumeHandle), Attach: attach}, err
}

// attaches reports whether the driver's volumes have to be attached, which is the default.
func (p *Plugin) attaches(ctx context.Context, name string) (bool, error) {
	d, err := p.driver(ctx, name)
	if err != nil {
		return false, err
	}
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired, nil
}

// driver returns the CSIDriver object, nil if there is none.
func (p *Plugin) driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	if p.cfg.API == nil {
		return nil, errStandalone
	}
	d, err := p.cfg.API.CSIDriver(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read CSIDriver %s: %w", name, err)
	}
	return d, nil
}

// TakesLabel reports whether the driver supports mounting with a label (seLinuxMount).
func (p *Plugin) TakesLabel(ctx context.Context, s persistent.Spec) (bool, error) {
	d, err := p.driver(ctx, s.PV.Spec.CSI.Driver)
	return d != nil && d.Spec.SELinuxMount != nil && *d.Spec.SELinuxMount, err
}

// checkMode checks that the driver supports the volume lifecycle mode.
func checkMode(d *storagev1.CSIDriver, name, mode string) error {
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	if d == nil && mode != lasting {
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name)
	}
	if d != nil && len(d.Spec.VolumeLifecycleModes) > 0 {
		modes = d.Spec.VolumeLifecycleModes
	}
	if !slices.Contains(modes, storagev1.VolumeLifecycleMode(mode)) {
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, modes)
	}
	return nil
}

// Devices returns what may be staged, from the records. Directories without a record are removed: a
// crash left them before there was any effect.
func (p *Plugin) Devices() ([]persistent.Device, error) {
	var out []persistent.Device
	var errs []error
	for _, dir := range p.recordDirs() {
		r, err := p.deviceRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			// A directory with other content stays.
			if err := removeRecord(dir.path); err == nil && dir.block {
				_ = os.Remove(filepath.Dir(dir.path))
			}
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// Assumed to be attachable until the CSIDriver is read, which is safe.
		out = append(out, persistent.Device{
			Traits: persistent.Traits{ID: uniqueName(r.Driver, r.Handle), Attach: true, Label: r.SELinux},
			Name:   dir.name,
			Dir:    dir.path,
			Block:  dir.block,
		})
	}
	return out, errors.Join(errs...)
}

type recordDir struct {
	path, name string // of the PersistentVolume or inline volume, if the path contains it
	block      bool
}

// recordDirs returns the directories that contain a record, or are about to.
func (p *Plugin) recordDirs() []recordDir {
	var out []recordDir
	for _, driver := range list(p.paths.plugin()) {
		if driver == blockDir {
			continue
		}
		for _, sum := range list(filepath.Join(p.paths.plugin(), driver)) {
			if len(sum) == 2*sha256.Size {
				out = append(out, recordDir{path: filepath.Join(p.paths.plugin(), driver, sum)})
			}
		}
	}
	for _, name := range list(filepath.Join(p.paths.plugin(), blockDir)) {
		data := p.paths.blockRecord(name)
		if _, err := os.Lstat(data); err == nil {
			out = append(out, recordDir{data, name, true})
			continue
		}
		// The record of a volume is removed last, except for the directory around it. A directory
		// that is not empty stays.
		_ = os.Remove(p.paths.block(name))
	}
	return out
}

// list returns the names in a directory; none if it cannot be read.
func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// DeviceOf reads the record of a pod's volume.
func (p *Plugin) DeviceOf(place volume.Place) (persistent.Traits, error) {
	r, err := p.recordOf(place)
	if errors.Is(err, fs.ErrNotExist) || err == nil && r.Lifecycle == ephemeral {
		return persistent.Traits{}, nil
	}
	if err != nil {
		return persistent.Traits{}, err
	}
	return persistent.Traits{ID: uniqueName(r.Driver, r.Handle), Attach: true, Label: r.SELinux}, nil
}

// CountedAs returns the name in metrics: that of the plugin with the driver's.
func (*Plugin) CountedAs(s persistent.Spec) string {
	if s.PV != nil && s.PV.Spec.CSI != nil {
		return PluginName + ":" + s.PV.Spec.CSI.Driver
	}
	if s.Inline != nil && s.Inline.CSI != nil {
		return PluginName + ":" + s.Inline.CSI.Driver
	}
	return PluginName
}

// StagedAs returns the name in metrics of a staged volume.
func (*Plugin) StagedAs(d persistent.Device) string {
	s, err := splitName(d.ID)
	if err != nil {
		return PluginName
	}
	return PluginName + ":" + s.driver
}

// FoundAs returns the name in metrics of a volume on the disk.
func (p *Plugin) FoundAs(place volume.Place) string {
	rec, err := p.recordOf(place)
	if err != nil {
		return PluginName // its release reports the error
	}
	return PluginName + ":" + rec.Driver
}
