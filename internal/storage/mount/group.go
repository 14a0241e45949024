package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Permission bits for a volume's group: read or write for files, and for directories search and
// setgid, so that new files inherit the group.
const (
	groupRead  = 0o440
	groupWrite = 0o660
	groupEnter = 0o110 | unix.S_ISGID
)

// Grant gives a tree to a group: every file and directory gets the group, group read permission,
// and write permission unless ReadOnly. Symlinks get the group and are not followed.
type Grant struct {
	GID      int
	ReadOnly bool
	// Done counts the objects visited, for progress reports. It may be nil.
	Done *atomic.Int64
}

// SetGroup is Grant.Apply without cancellation and progress.
func SetGroup(root string, gid int, readOnly bool) error {
	return Grant{GID: gid, ReadOnly: readOnly}.Apply(context.Background(), root)
}

// HasGroup reports whether root itself has the ownership and mode that SetGroup sets. The policy
// OnRootMismatch then skips the tree.
func HasGroup(root string, gid int, readOnly bool) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return false, &os.PathError{Op: "lstat", Path: root, Err: err}
	}
	return Grant{GID: gid, ReadOnly: readOnly}.holds(&st), nil
}

// bits returns the permission bits that an object gets.
func (g Grant) bits(mode uint32) uint32 {
	bits := uint32(groupWrite)
	if g.ReadOnly {
		bits = groupRead
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		bits |= groupEnter
	}
	return bits
}

// holds reports whether an object already has the ownership and mode.
func (g Grant) holds(st *unix.Stat_t) bool {
	if int(st.Gid) != g.GID {
		return false
	}
	bits := g.bits(st.Mode)
	return st.Mode&unix.S_IFMT == unix.S_IFLNK || st.Mode&bits == bits
}

// Apply walks the tree in parallel until ctx ends. Objects that already have the group are not
// changed.
//
// The root is changed last: until then, an interrupted walk is not mistaken for a complete one.
func (g Grant) Apply(ctx context.Context, root string) error {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: root, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		w := walk{ctx: ctx, root: root, fd: fd, hands: make(chan struct{}, walkers()), visit: g.entry}
		if err := w.run(); err != nil {
			return err
		}
	}
	return g.give(fd, root)
}

// give changes an open object if necessary.
func (g Grant) give(fd int, path string) error {
	if g.Done != nil {
		g.Done.Add(1)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if g.holds(&st) {
		return nil
	}
	if int(st.Gid) != g.GID {
		if err := unix.Fchownat(fd, "", -1, g.GID, unix.AT_EMPTY_PATH); err != nil {
			return &os.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	// chown may have cleared set-id bits, so they are set again.
	have, want := st.Mode&^unix.S_IFMT, st.Mode&^unix.S_IFMT|g.bits(st.Mode)
	if want != have || int(st.Gid) != g.GID && want&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if err := chmodOpen(fd, want); err != nil {
			return &os.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	return nil
}

// chmodOpen changes the mode of the object of an O_PATH descriptor. Kernels before 6.6 have no
// system call for it, but /proc works.
func chmodOpen(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
	}
	return err
}

// entry handles one object. Most often it needs no change, which one fstatat shows; otherwise it is
// opened, so that the object checked is the one that is changed.
func (g Grant) entry(dir int, path, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && g.holds(&st) {
		if g.Done != nil {
			g.Done.Add(1)
		}
		return nil
	}
	if err == nil {
		var fd int
		if fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(fd)
			return g.give(fd, filepath.Join(path, name))
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // removed concurrently by another user of the volume
	}
	return &os.PathError{Op: "open", Path: filepath.Join(path, name), Err: err}
}
