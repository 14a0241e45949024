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

// ErrMounted is the cause if a tree is not removed because it contains a mount point.
var ErrMounted = errors.New("something is mounted there")

// maxDepth bounds the number of open directories. Deeper directories are moved up first, since a
// container can nest more of them than there are file descriptors.
const maxDepth = 64

// RemoveTree removes path and everything beneath it, like os.RemoveAll, but never crosses a mount
// point, even of the same file system: it fails with ErrMounted. It is not an error if path does
// not exist.
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
	top   int // the tree's parent, where deep directories are moved to
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

// moveUp moves a directory to the top of the tree under an unused name. An interrupted removal may
// have left names of the same form, or the container may have created one.
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

// empty removes the entries of an open directory until a reading from the start finds none, and
// closes it.
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

// openSameMount opens a directory for reading. It fails with EXDEV if the directory is a mount
// point.
func openSameMount(parent int, name string) (int, error) {
	fd, err := openat2(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	if !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// On kernels before 5.6 a mount of another file system shows in the device number. One of the
	// same file system would only be found by EBUSY after its content was removed, so the mount
	// table is checked.
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
