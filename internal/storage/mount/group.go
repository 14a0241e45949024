package mount

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Permission bits that a volume's group is given: to read or to write files, and
// for directories to enter them and to hand the group on to what is made inside.
const (
	groupRead  = 0o440
	groupWrite = 0o660
	groupEnter = 0o110 | unix.S_ISGID
)

// SetGroup gives a tree to a group: every file and directory belongs to it and
// lets it read, and write unless readOnly. Symlinks change their group and are
// not followed. Each object is opened first and changed by its descriptor, so a
// symlink put in its place is not followed either.
func SetGroup(root string, gid int, readOnly bool) error {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	return setGroup(fd, root, gid, readOnly)
}

// HasGroup reports whether root itself is as SetGroup leaves it, from which the
// policy OnRootMismatch concludes that all below it is.
func HasGroup(root string, gid int, readOnly bool) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return false, &os.PathError{Op: "lstat", Path: root, Err: err}
	}
	bits := groupBits(st.Mode, readOnly)
	return int(st.Gid) == gid && st.Mode&bits == bits, nil
}

func groupBits(mode uint32, readOnly bool) uint32 {
	bits := uint32(groupWrite)
	if readOnly {
		bits = groupRead
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		bits |= groupEnter
	}
	return bits
}

// setGroup takes over fd.
func setGroup(fd int, path string, gid int, readOnly bool) error {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(st.Gid) != gid {
		if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return &os.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK {
		return nil
	}
	// The change of owner may have cleared set-id bits, so they are set anew.
	want := st.Mode&^unix.S_IFMT | groupBits(st.Mode, readOnly)
	if want != st.Mode&^unix.S_IFMT || int(st.Gid) != gid && want&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), want); err != nil {
			return &os.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	if kind != unix.S_IFDIR {
		return nil
	}
	dirfd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(dirfd), path)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			child, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.ENOENT) {
				continue // removed by another user of the volume
			}
			if err != nil {
				return &os.PathError{Op: "open", Path: filepath.Join(path, name), Err: err}
			}
			if err := setGroup(child, filepath.Join(path, name), gid, readOnly); err != nil {
				return err
			}
		}
	}
}
