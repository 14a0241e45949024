package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

const (
	name    = "kubernetes.io/local-volume"
	dirMode = 0o750
)

// Config holds what the plugin is built from. Every field but Tools is required.
type Config struct {
	RootDir string
	Guard   *mount.Guard
	Events  pod.Events
	Tools   mount.Tools
}

// Plugin serves local volumes.
type Plugin struct{ cfg Config }

var _ persistent.Expander = (*Plugin)(nil)

// New makes the plugin.
func New(cfg Config) *Plugin {
	cfg.Tools.Alive = volume.Alive // formatting and repair have no time limit
	return &Plugin{cfg}
}

func (*Plugin) Name() string { return name }

func (*Plugin) Serves(s persistent.Spec) bool { return s.PV != nil && s.PV.Spec.Local != nil }

func (*Plugin) Describe(_ context.Context, s persistent.Spec) (persistent.Traits, error) {
	return traits(s.PV.Name), nil
}

func traits(pv string) persistent.Traits { return persistent.Traits{ID: name + "/" + pv} }

func (p *Plugin) base() string { return filepath.Join(p.cfg.RootDir, "plugins", name) }

func (p *Plugin) mounts() string { return filepath.Join(p.base(), "mounts") }

// MapDir returns the directory in which a volume's device is mapped for pods.
func (p *Plugin) MapDir(pv string) string { return filepath.Join(p.base(), "volumeDevices", pv) }

// source returns what is mounted into pods: the directory itself, or the mount point of the staged
// disk.
func (p *Plugin) source(pv *v1.PersistentVolume) (path string, disk bool, err error) {
	path = pv.Spec.Local.Path
	var st unix.Stat_t
	switch err := unix.Stat(path, &st); {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return "", false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return path, false, nil
	case unix.S_IFBLK:
		return filepath.Join(p.mounts(), pv.Name), true, nil
	}
	return "", false, pod.ShowAs("only directory and block device are supported",
		fmt.Errorf("path %q of volume %s is neither a directory nor a block device", path, pv.Name))
}

// Stage mounts a disk. The directory that it is mounted on is its record. For a directory there is
// nothing to do.
func (p *Plugin) Stage(ctx context.Context, r persistent.Request) error {
	if r.Block {
		return nil
	}
	path := r.PV.Spec.Local.Path
	return p.cfg.Guard.Do(ctx, path, "stage local volume", func() error {
		global, disk, err := p.source(r.PV)
		if err != nil || !disk {
			return persistent.Failed(r, persistent.StepInit, err)
		}
		if err := os.MkdirAll(global, dirMode); err != nil {
			return err
		}
		var options []string
		if r.ReadOnly {
			options = append(options, "ro")
		}
		options = r.MountOptions(options...)
		kind := ""
		if r.PV.Spec.Local.FSType != nil {
			kind = *r.PV.Spec.Local.FSType
		}
		if err := p.cfg.Tools.MountDisk(ctx, path, global, kind, options); err != nil {
			text := fmt.Sprintf("local: failed to mount device %s at %s (fstype: %s), error %s",
				path, global, kind, pod.TextOf(err))
			err = pod.ShowAs(text, err)
			if on, _ := mount.IsPoint(global); on || ctx.Err() != nil {
				return persistent.Unknown(err)
			}
			return persistent.Undone(err, removeEmpty(global))
		}
		return nil
	})
}

// Unstage unmounts the disk.
func (p *Plugin) Unstage(ctx context.Context, d persistent.Device) error {
	global := filepath.Join(p.mounts(), d.Name)
	return p.cfg.Guard.Do(ctx, global, "unstage local volume", func() error {
		if err := mount.Unmount(global); err != nil {
			return err
		}
		return removeEmpty(global)
	})
}

// Publish mounts the volume for the pod.
func (p *Plugin) Publish(ctx context.Context, r persistent.Request) (persistent.Published, error) {
	if r.Block {
		return persistent.Published{Device: r.PV.Spec.Local.Path, ReadOnly: r.ReadOnly}, nil
	}
	out := persistent.Published{Path: r.Place.Path, ReadOnly: r.ReadOnly, Relabel: true}
	var source string
	var done, first bool
	err := p.cfg.Guard.Do(ctx, r.Place.Path, "publish local volume", func() (err error) {
		if source, _, err = p.source(r.PV); err != nil {
			return persistent.Failed(r, persistent.StepInit, err)
		}
		if done, err = mount.IsPoint(r.Place.Path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err == nil && !done {
			first, err = p.first(r)
		}
		return err
	})
	if err != nil || done {
		return out, err
	}
	// Before the bind mount, so that an existing mount is complete.
	if err := p.share(ctx, r, source, first); err != nil {
		return persistent.Published{}, err
	}
	err = p.cfg.Guard.Do(ctx, r.Place.Path, "publish local volume", func() error {
		if err := os.MkdirAll(r.Place.Path, dirMode); err != nil {
			return err
		}
		if err := mount.BindAt(source, r.Place.Path, p.options(r)); err != nil {
			return persistent.Undone(err, removeEmpty(r.Place.Path))
		}
		return nil
	})
	return out, err
}

// options returns the options of the bind mount. A disk is mounted with its options when staged.
func (p *Plugin) options(r persistent.Request) []string {
	var options []string
	if r.ReadOnly {
		options = append(options, "ro")
	}
	if _, disk, err := p.source(r.PV); err == nil && !disk {
		options = r.MountOptions(options...)
	}
	return options
}

// first reports whether no other pod has the volume.
func (p *Plugin) first(r persistent.Request) (bool, error) {
	uids, err := volume.PodsOn(p.cfg.RootDir)
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		other := volume.PlaceOf(p.cfg.RootDir, uid, name, r.Name, false).Path
		if on, err := mount.IsPoint(other); on && err == nil && other != r.Place.Path {
			return false, nil
		}
	}
	return true, nil
}

// share gives the volume to the pod's fsGroup if no other pod has it. With different fsGroups
// another pod would lose access.
func (p *Plugin) share(ctx context.Context, r persistent.Request, source string, first bool) error {
	sc := r.Pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	if !first {
		return p.cfg.Guard.Do(ctx, source, "check fsGroup", func() error {
			var st unix.Stat_t
			if err := unix.Stat(source, &st); err != nil {
				return fmt.Errorf("failed to check fsGroup for %s (%w)", source, &os.PathError{
					Op:   "stat",
					Path: source,
					Err:  err,
				})
			}
			if int64(st.Gid) != *sc.FSGroup {
				p.cfg.Events.Pod(r.Pod, "", v1.EventTypeWarning, pod.EventAlreadyMounted,
					fmt.Sprintf(
						"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
						*sc.FSGroup, r.Name, st.Gid))
			}
			return nil
		})
	}
	if r.ReadOnly {
		return nil
	}
	return volume.Ownership{Guard: p.cfg.Guard, Events: p.cfg.Events}.SetFSGroup(ctx, r.Pod, source, false)
}

// Expand grows the file system of a disk to the size of the disk. For directories and block volumes
// there is nothing to do.
func (p *Plugin) Expand(ctx context.Context, r persistent.Request, _ resource.Quantity) error {
	if r.Block {
		return nil
	}
	path := r.PV.Spec.Local.Path
	return p.cfg.Guard.Do(ctx, r.Place.Path, "expand local volume", func() error {
		_, disk, err := p.source(r.PV)
		if err != nil || !disk {
			return err
		}
		return p.cfg.Tools.GrowDisk(ctx, path, r.Place.Path)
	})
}

// Unpublish unmounts the volume from the pod. It never removes data.
func (p *Plugin) Unpublish(ctx context.Context, place volume.Place) error {
	if place.Block {
		return removeLink(place.Path)
	}
	return p.cfg.Guard.Do(ctx, place.Path, "unpublish local volume", func() error {
		if err := mount.Unmount(place.Path); err != nil {
			return err
		}
		return removeEmpty(place.Path)
	})
}

// Devices returns the disks that may be staged.
func (p *Plugin) Devices() ([]persistent.Device, error) {
	entries, err := os.ReadDir(p.mounts())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []persistent.Device
	for _, e := range entries {
		out = append(out, persistent.Device{
			Traits: traits(e.Name()),
			Name:   e.Name(),
			Dir:    filepath.Join(p.mounts(), e.Name()),
		})
	}
	return out, err
}

func (*Plugin) DeviceOf(place volume.Place) (persistent.Traits, error) {
	return traits(place.Name), nil
}

// removeEmpty removes an empty directory. It never removes data; the error names what is in the
// way.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func removeLink(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
