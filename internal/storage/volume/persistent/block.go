package persistent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

const mapDirMode = 0o750

// publishDevice publishes a block device and maps it for the pod. The symlink in the pod's
// directory is created first and removed last, so that it records the mapping.
func (v *Volumes) publishDevice(ctx context.Context, plugin Plugin, r Request) (Published, error) {
	dir := plugin.(Blocker).MapDir(r.Name)
	global := filepath.Join(dir, string(r.Pod.UID))
	if err := link(global, r.Place.Path); err != nil {
		return Published{}, err
	}
	out, err := plugin.Publish(ctx, r)
	if err != nil {
		if on, _ := mount.IsPoint(global); !on && !IsUnknown(err) {
			return Published{}, errors.Join(err, unlink(r.Place.Path))
		}
		return Published{}, err
	}
	var loop string
	uid := r.Pod.UID
	err = v.cfg.Guard.Do(ctx, global, "map device", func() error {
		device, err := filepath.EvalSymlinks(out.Device)
		if err != nil {
			return Failed(r, stepFollow, err)
		}
		unbound := func(err error) error {
			return Failed(r, stepMap, fmt.Errorf("blkUtil.MapDevice failed. "+
				"devicePath: %s, globalMapPath:%s, podUID: %s, bindMount: true: %w", device, dir, uid, err))
		}
		if err := os.MkdirAll(dir, mapDirMode); err != nil {
			return unbound(fmt.Errorf("failed to mkdir %s: %w", dir, err))
		}
		if err := mount.BindDevice(out.Device, global); err != nil {
			return unbound(fmt.Errorf("failed to bind mount devicePath: %s to linkPath %s: %w", device, global, err))
		}
		// The loop device holds the device open, so that its name cannot be reused for another
		// device.
		if loop, err = mount.AttachLoop(global); err != nil {
			return Failed(r, stepMap, fmt.Errorf("blkUtil.AttachFileDevice failed. globalMapPath:%s, podUID: %s: "+
				"makeLoopDevice failed for path %s: %w", dir, uid, global, err))
		}
		return nil
	})
	if err != nil {
		return Published{}, Unknown(err)
	}
	if old, err := os.Readlink(r.Place.Path); err != nil || old != out.Device {
		if err := relink(out.Device, r.Place.Path); err != nil {
			at, name := filepath.Split(r.Place.Path)
			err = fmt.Errorf("blkUtil.MapDevice failed. "+
				"devicePath: %s, podVolumeMapPath:%s, volumeMapName: %s, bindMount: false: %w",
				out.Device, filepath.Clean(at), name, err)
			return Published{}, Unknown(Failed(r, stepMap, err))
		}
		v.cfg.Log.Info("mapped block volume", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "podUID", r.Pod.UID, "volumeName",
			r.Name,
			"device", out.Device, "loop", loop)
		for _, where := range []string{
			fmt.Sprintf("globalMapPath %q", dir),
			fmt.Sprintf("volumeMapPath %q", filepath.Dir(r.Place.Path)),
		} {
			v.cfg.Events.Pod(r.Pod, "", v1.EventTypeNormal, pod.EventMountedVolume,
				fmt.Sprintf("MapVolume.MapPodDevice succeeded for volume %q %s", r.Name, where))
		}
	}
	out.Device = r.Place.Path
	return out, nil
}

// unmapDevice removes the mapping of a device, except for the symlink.
func (v *Volumes) unmapDevice(ctx context.Context, plugin Plugin, p volume.Place) error {
	blocker, ok := plugin.(Blocker)
	if !ok {
		return fmt.Errorf("plugin %s has no block devices", plugin.Name())
	}
	dir := blocker.MapDir(p.Name)
	global := filepath.Join(dir, string(p.UID))
	return v.cfg.Guard.Do(ctx, global, "unmap device", func() error {
		if err := mount.DetachLoop(global); err != nil {
			return err
		}
		if err := mount.Unmount(global); err != nil {
			return err
		}
		if err := unlink(global); err != nil {
			return err
		}
		// The directories are shared with other pods; the last one removes them.
		for range 2 {
			if err := os.Remove(dir); err != nil {
				break
			}
			dir = filepath.Dir(dir)
		}
		return nil
	})
}

// link creates a symlink if it does not exist.
func link(to, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), mapDirMode); err != nil {
		return err
	}
	if err := os.Symlink(to, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// relink replaces a symlink atomically.
func relink(to, path string) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := unlink(next); err != nil {
		return err
	}
	if err := os.Symlink(to, next); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func unlink(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
