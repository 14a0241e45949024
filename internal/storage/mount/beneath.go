package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"keelson/internal/pods/panics"
)

// ErrEscapes is the cause if a path leads out of the directory that it must stay beneath.
var ErrEscapes = errors.New("leads out of the volume")

// OpenBeneath opens the path sub beneath root, for use as the source of a bind mount. Symlinks are
// followed as long as they stay beneath root. Concurrent changes of the tree cannot make it open
// anything else.
func OpenBeneath(root, sub string) (*os.File, error) {
	if !filepath.IsLocal(sub) {
		return nil, fmt.Errorf("open %s below %s: %w", sub, root, ErrEscapes)
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	fd, err := openBeneath(dir, root, sub)
	if errors.Is(err, unix.EXDEV) {
		err = ErrEscapes
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(root, sub), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(root, sub)), nil
}

func openBeneath(dir int, root, sub string) (int, error) {
	fd, err := openat2(dir, sub, unix.O_PATH, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// An absolute symlink is allowed if it leads back beneath root. Resolving it first is not safe
	// against races, so the result is then opened without following symlinks.
	realRoot, rerr := filepath.EvalSymlinks(root)
	if rerr != nil {
		return -1, rerr
	}
	realSub, leads := filepath.EvalSymlinks(filepath.Join(root, sub))
	switch {
	case leads != nil && errors.Is(err, unix.EXDEV):
		// Intermediate symlinks lead out of root. Whether the target exists is not revealed to the
		// pod.
		return -1, ErrEscapes
	case leads != nil:
		return openStepwise(dir, sub)
	}
	rel, err := filepath.Rel(realRoot, realSub)
	if err != nil || !filepath.IsLocal(rel) {
		return -1, ErrEscapes
	}
	// Not with O_NOFOLLOW: together with O_PATH it would open a symlink created meanwhile, and bind
	// mounting a symlink would resolve it anywhere.
	fd, err = openat2(dir, rel, unix.O_PATH, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ENOSYS) {
		return openStepwise(dir, rel)
	}
	return fd, err
}

// openStepwise replaces openat2 without symlinks on kernels before 5.6: each element is opened
// relative to the one before.
func openStepwise(dir int, rel string) (int, error) {
	at, err := unix.Openat(dir, ".", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, name := range elements(rel) {
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(next, &st); err != nil {
			unix.Close(next)
			return -1, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			unix.Close(next)
			return -1, unix.ELOOP
		}
		at = next
	}
	return at, nil
}

// elements splits a clean relative path. "." has no elements.
func elements(rel string) []string {
	rel = filepath.Clean(rel)
	if rel == "." {
		return nil
	}
	return strings.Split(rel, "/")
}

// MkdirBeneath creates the missing directories of sub beneath root with the given permissions,
// regardless of the umask, and with the setgid and sticky bits of mode. It is as safe against races
// as OpenBeneath.
func MkdirBeneath(root, sub string, mode os.FileMode) error {
	names := elements(sub)
	for have := len(names); ; have-- {
		at, err := OpenBeneath(root, filepath.Join(append([]string{"."}, names[:have]...)...))
		if errors.Is(err, os.ErrNotExist) && have > 0 {
			continue
		}
		if err != nil {
			return err
		}
		defer at.Close()
		if have == len(names) {
			return nil
		}
		return withoutUmask(func() error { return mkdirs(at, names[have:], mode) })
	}
}

// withoutUmask runs fn on a thread with an empty umask of its own. Setting the mode after mkdir is
// not enough: if the agent was killed in between, the mode would stay wrong, since existing
// directories are not changed.
func withoutUmask(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread exits with the goroutine
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- fmt.Errorf("unshare umask: %w", err)
			return
		}
		unix.Umask(0)
		done <- panics.Catch(fn)
	}()
	return <-done
}

func mkdirs(at *os.File, names []string, mode os.FileMode) error {
	bits := uint32(mode.Perm())
	if mode&os.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if mode&os.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	dir, path := int(at.Fd()), at.Name()
	for _, name := range names {
		path = filepath.Join(path, name)
		err := unix.Mkdirat(dir, name, bits)
		made := err == nil
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		next, err := unix.Openat(dir, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(next)
		if made { // some file systems set other bits than requested
			if err := unix.Fchmod(next, bits); err != nil {
				return &os.PathError{Op: "chmod", Path: path, Err: err}
			}
		}
		dir = next
	}
	return nil
}

// openat2 opens a path with restrictions on its resolution. The kernel returns EAGAIN if a
// concurrent rename or mount might affect the resolution.
func openat2(dir int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for range 128 {
		fd, err := unix.Openat2(dir, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}
