package san

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"keelson/internal/storage/mount"
)

const (
	// deviceTimeout bounds the wait for a device, and then for its multipath device.
	deviceTimeout = 10 * time.Second
	look          = 100 * time.Millisecond
)

// node is the machine that disks are attached to.
type node struct {
	root  string // of /dev and /sys
	tools mount.Tools
}

func (n node) dev(names ...string) string {
	return filepath.Join(append([]string{n.root, "/dev"}, names...)...)
}

func (n node) sys(names ...string) string {
	return filepath.Join(append([]string{n.root, "/sys"}, names...)...)
}

// await polls until find returns something. inotify cannot be used, since the directories of
// devices may not exist yet.
func await[T any](ctx context.Context, limit time.Duration, find func() ([]T, error)) ([]T, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if got, err := find(); err != nil || len(got) > 0 {
			return got, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// present returns those links whose device exists. The kernel removes a device at once, but udev
// removes its links later.
func present(links []string) ([]string, error) {
	var out []string
	for _, link := range links {
		switch _, err := os.Stat(link); {
		case err == nil:
			out = append(out, link)
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// kernelName returns the kernel's name of a device: sda.
func kernelName(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	return filepath.Base(real), err
}

// multipath returns the multipath device of the paths, or else the first path. For a single path a
// multipath device is not waited for.
func (n node) multipath(ctx context.Context, paths []string) (string, error) {
	find := func() ([]string, error) {
		for _, p := range paths {
			name, err := kernelName(p)
			if err != nil {
				return nil, err
			}
			if dm := n.parent(name); dm != "" {
				return []string{n.dev(dm)}, nil
			}
		}
		return nil, nil
	}
	limit := time.Duration(0)
	if _, err := n.tools.Find("multipath"); err == nil && len(paths) > 1 {
		limit = deviceTimeout
	}
	got, err := await(ctx, limit, find)
	if err != nil || len(got) > 0 {
		return strings.Join(got, ""), err
	}
	return paths[0], ctx.Err()
}

// parent returns the multipath device of a disk.
func (n node) parent(disk string) string {
	found, err := filepath.Glob(n.sys("block", "dm-*", "slaves", disk))
	if err != nil || len(found) == 0 {
		return ""
	}
	return filepath.Base(filepath.Dir(filepath.Dir(found[0])))
}

// flush removes the multipath device of the paths, if there is one, and returns the kernel names of
// its paths.
func (n node) flush(ctx context.Context, paths []string) (disks []string, err error) {
	for _, p := range paths {
		name, err := kernelName(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		disks = append(disks, name)
	}
	for _, disk := range slices.Clone(disks) {
		dm := n.parent(disk)
		if dm == "" {
			continue
		}
		slaves, err := os.ReadDir(n.sys("block", dm, "slaves"))
		if err != nil {
			return nil, err
		}
		for _, s := range slaves {
			if !slices.Contains(disks, s.Name()) {
				disks = append(disks, s.Name())
			}
		}
		if _, err := n.tools.Run(ctx, "multipath", "-f", n.dev(dm)); err != nil {
			return nil, fmt.Errorf("flush multipath device %s: %w", dm, err)
		}
	}
	return disks, nil
}

// deleteDisks removes disks from the kernel, which flushes their caches.
func (n node) deleteDisks(disks []string) error {
	for _, disk := range disks {
		path := n.sys("block", disk, "device", "delete")
		if err := os.WriteFile(path, []byte("1"), 0o200); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove disk %s: %w", disk, err)
		}
	}
	return nil
}
