package mount

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Usage is the usage of a file system, or of a tree in it.
type Usage struct {
	Used, Capacity, Available      uint64 // bytes
	InodesUsed, Inodes, InodesFree uint64
}

// UsageOfFilesystem returns the usage of the file system that contains path.
func UsageOfFilesystem(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	size := uint64(st.Bsize)
	return Usage{
		Used:       (st.Blocks - st.Bfree) * size,
		Capacity:   st.Blocks * size,
		Available:  st.Bavail * size,
		InodesUsed: st.Files - st.Ffree,
		Inodes:     st.Files,
		InodesFree: st.Ffree,
	}, nil
}

// UsageOfTree returns the disk usage of a tree as du does: blocks, each inode once, without other
// mounts. Files removed meanwhile are not counted.
func UsageOfTree(ctx context.Context, root string) (Usage, error) {
	u, err := UsageOfFilesystem(root)
	if err != nil {
		return Usage{}, err
	}
	u.Used, u.InodesUsed = 0, 0
	fd, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Usage{}, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	dev, seen := st.Dev, map[uint64]struct{}{}
	count := func(st *unix.Stat_t) {
		if st.Dev != dev {
			return
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if _, ok := seen[st.Ino]; ok {
				return
			}
			seen[st.Ino] = struct{}{}
		}
		u.Used += uint64(st.Blocks) * 512
		u.InodesUsed++
	}
	count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return u, nil
	}
	// One goroutine only: the result is not urgent.
	w := walk{
		ctx:  ctx,
		root: root,
		fd:   fd,
		how:  unix.RESOLVE_NO_XDEV,
		visit: func(dir int, path, name string) error {
			var st unix.Stat_t
			switch err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err {
			case nil:
				count(&st)
				return nil
			case unix.ENOENT:
				return nil
			default:
				return &os.PathError{Op: "stat", Path: filepath.Join(path, name), Err: err}
			}
		},
	}
	return u, w.run()
}
