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

// At lists the mount points at and below a directory, the ones to be unmounted
// first before those that carry them. A directory that was mounted on twice is
// listed twice. No file system is touched.
func At(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Clean(dir)))
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	points := make([]string, 0, len(infos))
	for _, m := range infos {
		points = append(points, m.Mountpoint)
	}
	// The table is in order of mounting: what came later lies on top.
	slices.Reverse(points)
	return points, nil
}

// IsPoint reports whether something is mounted at path itself. A path that does
// not exist is an error.
func IsPoint(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("stat %s: %w", path, err)
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	// A kernel before 5.8, or a mount whose server is gone: the table knows.
	points, err := At(path)
	return slices.Contains(points, filepath.Clean(path)), err
}

// IsListed reports whether the mount table has something at path. Unlike IsPoint
// it asks no file system, whose server may be gone.
func IsListed(path string) (bool, error) {
	points, err := At(path)
	return slices.Contains(points, filepath.Clean(path)), err
}

// HasLabels reports whether the file system at path has SELinux labels of its own
// that can be changed: the kernel says so in its options. Nothing is asked of it.
func HasLabels(path string) (bool, error) {
	infos, err := mountinfo.GetMounts(allAt(filepath.Clean(path)))
	if err != nil {
		return false, fmt.Errorf("read mount table: %w", err)
	}
	return labelled(infos), nil
}

// allAt keeps what is mounted at the path, one on top of the other.
func allAt(path string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false }
}

func labelled(infos []*mountinfo.Info) bool {
	if len(infos) == 0 {
		return false
	}
	options := infos[len(infos)-1].VFSOptions // the last one lies on top
	return slices.Contains(strings.Split(options, ","), "seclabel")
}
