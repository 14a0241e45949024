package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// At lists the mount points at and beneath a directory in the order of unmounting. A directory with
// two mounts is listed twice. It does not access any file system.
func At(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Clean(dir)))
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	points := make([]string, 0, len(infos))
	for _, m := range infos {
		points = append(points, m.Mountpoint)
	}
	// The table is in the order of mounting: later mounts are on top.
	slices.Reverse(points)
	return points, nil
}

// IsPoint reports whether path is a mount point. It is an error if path does not exist.
func IsPoint(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC,
		0, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("stat %s: %w", path, err)
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	// A kernel before 5.8, or a mount whose server is gone: use the mount table.
	points, err := At(path)
	return slices.Contains(points, filepath.Clean(path)), err
}

// IsListed reports whether the mount table contains path. Unlike IsPoint it does not access the
// file system, whose server may be gone.
func IsListed(path string) (bool, error) {
	points, err := At(path)
	return slices.Contains(points, filepath.Clean(path)), err
}

// HasLabels reports whether the file system at path has SELinux labels that can be changed, which
// the mount options show. It does not access the file system.
func HasLabels(path string) (bool, error) {
	infos, err := mountinfo.GetMounts(allAt(filepath.Clean(path)))
	if err != nil {
		return false, fmt.Errorf("read mount table: %w", err)
	}
	return labelled(infos), nil
}

// allAt selects the mounts at path, one on top of the other.
func allAt(path string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false }
}

func labelled(infos []*mountinfo.Info) bool {
	if len(infos) == 0 {
		return false
	}
	options := infos[len(infos)-1].VFSOptions // the last one is on top
	return slices.Contains(strings.Split(options, ","), "seclabel")
}
