package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

var errReleasing = errors.New("the pod's volumes are being released")

// subPath bind mounts a sub-path of a volume at a place that containers cannot change, and returns
// that place. A sub-path that does not exist is created as a directory with the permissions of the
// volume.
//
// Containers may change the volume concurrently, so the sub-path is opened once, safely, and the
// open file is mounted.
func (m *Manager) subPath(
	ctx context.Context, uid types.UID, container, volume string, index int, root, sub string,
) (string, error) {
	base := filepath.Join(PodDir(m.cfg.RootDir, uid), subPathsDir)
	target := filepath.Join(base, volume, container, strconv.Itoa(index))
	// The volume's file system may hang, but the pod's directory does not: each mount has its own
	// key.
	err := m.cfg.Guard.Do(mount.Owned(ctx, ownerOf(uid)), target, "mount sub-path", func() error {
		if !m.isWanted(uid) {
			return errReleasing
		}
		source, err := openPart(root, sub)
		if err != nil {
			return err
		}
		defer source.Close()
		if err := bindAt(source, base, target); err != nil {
			return err
		}
		if !m.isWanted(uid) { // it hung, and the release was complete in the meantime
			return errors.Join(errReleasing, mount.Unmount(target))
		}
		return nil
	})
	return target, err
}

func (m *Manager) isWanted(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	return ps != nil && ps.phase == wanted
}

// mkdirError marks a failure to create the directory of a sub-path.
type mkdirError struct{ err error }

func (n *mkdirError) Error() string { return n.err.Error() }
func (n *mkdirError) Unwrap() error { return n.err }

// subPathFailed returns the error for a sub-path that could not be mounted. Users are not shown the
// cause, which contains paths of the node.
func subPathFailed(volume, container string, err error) error {
	step := "prepare subPath"
	if n := (*mkdirError)(nil); errors.As(err, &n) {
		step = "create subPath directory"
	}
	text := fmt.Sprintf("failed to %s for volumeMount %q of container %q", step, volume, container)
	return pod.ShowAs(text, fmt.Errorf("%s: %w", text, err))
}

// openPart opens a sub-path of a volume and creates it if it does not exist.
func openPart(root, sub string) (*os.File, error) {
	f, err := mount.OpenBeneath(root, sub)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	st, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if err := mount.MkdirBeneath(root, sub, st.Mode()); err != nil {
		return nil, &mkdirError{err}
	}
	return mount.OpenBeneath(root, sub)
}

// bindAt mounts source at target, unless it is already mounted there.
func bindAt(source *os.File, base, target string) error {
	var want, have unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &want); err != nil {
		return &os.PathError{Op: "stat", Path: source.Name(), Err: err}
	}
	if want.Mode&unix.S_IFMT == unix.S_IFLNK {
		// Accessing a mounted symlink would lead out of the volume.
		return &os.PathError{Op: "mount", Path: source.Name(), Err: mount.ErrEscapes}
	}
	on, err := mount.IsPoint(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case on:
		// The volume may have been replaced since the last start of the container.
		if err := unix.Stat(target, &have); err == nil && have.Dev == want.Dev && have.Ino == want.Ino {
			return nil
		}
		if err := mount.Unmount(target); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(target), podDirMode); err != nil {
		return err
	}
	if err := makeTarget(target, want.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return mount.Bind(source, target)
}

// makeTarget creates the empty directory or file to mount on.
func makeTarget(target string, dir bool) error {
	if st, err := os.Lstat(target); err == nil && st.IsDir() != dir {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if dir {
		if err := os.Mkdir(target, podDirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// releaseSubPaths unmounts and removes all sub-path mounts of a pod.
func (m *Manager) releaseSubPaths(ctx context.Context, podDir string) error {
	base := filepath.Join(podDir, subPathsDir)
	return m.cfg.Guard.Do(ctx, base, "release sub-paths", func() error {
		if _, err := os.Lstat(base); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := unmountAll(base); err != nil {
			return err
		}
		return mount.RemoveTree(base)
	})
}
