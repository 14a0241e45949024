package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Tmpfs mounts a new tmpfs. size is in bytes; zero means the kernel's default, half of the memory.
// On kernels 6.4 and later its pages are never swapped.
func Tmpfs(target string, size int64) error {
	var opts []string
	if size > 0 {
		opts = append(opts, "size="+strconv.FormatInt(size, 10))
	}
	if NoSwap() {
		opts = append(opts, "noswap")
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, strings.Join(opts, ",")); err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", target, err)
	}
	return nil
}

// NoSwap reports whether the kernel's tmpfs supports the option noswap. It configures a mount
// without creating it.
var NoSwap = sync.OnceValue(func() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false // kernel before 5.2, so before 6.4
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFlag(fd, "noswap") == nil
})

// MaySwap reports whether the content of a tmpfs may be swapped to disk: swap is enabled and noswap
// is not supported.
func MaySwap() (bool, error) { return maySwap("/proc/swaps") }

func maySwap(list string) (bool, error) {
	on, err := swapOn(list)
	return on && !NoSwap(), err
}

// swapOn reports whether the kernel's list contains a swap device or file.
func swapOn(list string) (bool, error) {
	b, err := os.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // kernel without swap support
	}
	if err != nil {
		return false, err
	}
	return strings.Count(strings.TrimSpace(string(b)), "\n") > 0, nil
}

// Hugetlbfs mounts a hugetlbfs with pages of the given size.
func Hugetlbfs(target string, pageSize int64) error {
	if err := unix.Mount("nodev", target, "hugetlbfs", 0, "pagesize="+strconv.FormatInt(pageSize, 10)); err != nil {
		return fmt.Errorf("mount hugetlbfs at %s: %w", target, err)
	}
	return nil
}

// Bind bind mounts the open file or directory at target, whatever its path refers to by now. Mounts
// beneath it are not included.
func Bind(source *os.File, target string) error {
	if err := unix.Mount(procPath(source), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", source.Name(), target, err)
	}
	return nil
}

// procPath returns a path of an open file for system calls that need one.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// maxStacked bounds the number of mounts removed from one mount point.
const maxStacked = 64

// Unmount removes all mounts at target. It is not an error if there is none, or if target does not
// exist. A busy mount is not forced; the error is EBUSY.
func Unmount(target string) error {
	for range maxStacked {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
			continue
		case errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EINVAL):
			if on, perr := IsPoint(target); perr == nil && !on {
				return nil
			}
		}
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return fmt.Errorf("unmount %s: more than %d mounts on it", target, maxStacked)
}

// ForceUnmount removes a mount whose server does not respond. Pending requests fail. A mount that
// is still in use is detached. Unwritten data is lost.
func ForceUnmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		err = Detach(target)
	} else {
		err = nil
	}
	return err
}

// Detach detaches the mount lazily: the kernel removes it when it is no longer in use. It is for
// mounts whose server does not respond; unwritten data is lost.
func Detach(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach %s: %w", target, err)
	}
	return nil
}
