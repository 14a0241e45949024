package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrMounted is the cause when a tree is not removed because something is
// mounted in it.
var ErrMounted = errors.New("something is mounted there")

// maxDepth is how many directories are held open at once. Deeper ones are moved
// up first, because a container can nest deeper than there are descriptors.
const maxDepth = 64

// RemoveTree removes path and everything below it, like os.RemoveAll, but never
// enters another mount, not even one of the same file system: it stops with
// ErrMounted. A path that does not exist is no error.
func RemoveTree(path string) error {
	path = filepath.Clean(path)
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(parent)
	r := remover{}
	return r.remove(parent, filepath.Base(path), path, 0)
}

type remover struct {
	top   int // the tree's own directory, where deep ones are moved to
	moved int
}

func (r *remover) remove(parent int, name, path string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove %s: %w", path, ErrMounted)
	case !errors.Is(err, unix.EISDIR):
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	if depth > maxDepth {
		return r.moveUp(parent, name, path)
	}
	dir, err := openSameMount(parent, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("remove %s: %w", path, ErrMounted)
	case err != nil:
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if depth == 0 {
		r.top = dir
	}
	if err := r.empty(dir, path, depth); err != nil {
		return err
	}
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove %s: %w", path, ErrMounted)
	}
	return &os.PathError{Op: "remove", Path: path, Err: err}
}

// moveUp moves a directory to the top of the tree, under a name that nobody has: one
// like it may be left by a removal that was interrupted, or be the container's own.
func (r *remover) moveUp(parent int, name, path string) error {
	for {
		r.moved++
		err := unix.Renameat(parent, name, r.top, ".removing~"+strconv.Itoa(r.moved))
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR):
		default:
			return &os.PathError{Op: "rename", Path: path, Err: err}
		}
	}
}

// empty removes what is in an open directory, until a reading of it from the
// start finds nothing, and closes it.
func (r *remover) empty(dir int, path string, depth int) error {
	f := os.NewFile(uintptr(dir), path)
	defer f.Close()
	for {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := f.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, name, filepath.Join(path, name), depth+1); err != nil {
				return err
			}
		}
	}
}

// openSameMount opens a directory for reading if it is on the same mount as the
// directory it stands in, else fails with EXDEV.
func openSameMount(parent int, name string) (int, error) {
	fd, err := openat2(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	if !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// Kernels before 5.6: a mount of another file system shows in the device
	// number. One of the same file system is found by EBUSY on removal of the
	// mount point, but only after its content; refuse whatever the table knows.
	fd, err = unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err == nil {
		var points []string
		points, err = At(path)
		if err == nil && len(points) > 0 {
			err = unix.EXDEV
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
