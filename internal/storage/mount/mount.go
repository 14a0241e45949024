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

// Tmpfs mounts a fresh memory file system. Size is in bytes; zero leaves it to
// the kernel, which takes half of the memory. Where the kernel can (6.4 and
// later), its pages are never swapped out.
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

// NoSwap reports whether the kernel's tmpfs knows the noswap option. A mount is
// configured with it and never made.
var NoSwap = sync.OnceValue(func() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false // before 5.2, so before 6.4
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFlag(fd, "noswap") == nil
})

// MaySwap reports whether a tmpfs can end up on a disk: the kernel has somewhere
// to swap to and cannot be told to leave a tmpfs alone.
func MaySwap() (bool, error) { return maySwap("/proc/swaps") }

func maySwap(list string) (bool, error) {
	on, err := swapOn(list)
	return on && !NoSwap(), err
}

// swapOn reports whether the kernel's list names anywhere to swap to.
func swapOn(list string) (bool, error) {
	b, err := os.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without swap
	}
	if err != nil {
		return false, err
	}
	return strings.Count(strings.TrimSpace(string(b)), "\n") > 0, nil
}

// Hugetlbfs mounts a file system of huge pages of the given size.
func Hugetlbfs(target string, pageSize int64) error {
	if err := unix.Mount("nodev", target, "hugetlbfs", 0, "pagesize="+strconv.FormatInt(pageSize, 10)); err != nil {
		return fmt.Errorf("mount hugetlbfs at %s: %w", target, err)
	}
	return nil
}

// Bind mounts the open file or directory at target. What it is opened on is
// what gets mounted, wherever its path leads by now. Mounts below are not taken
// along.
func Bind(source *os.File, target string) error {
	if err := unix.Mount(procPath(source), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", source.Name(), target, err)
	}
	return nil
}

// procPath names an open file in a way that every system call understands.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// maxStacked bounds how many mounts are taken off one place.
const maxStacked = 64

// Unmount takes off everything that is mounted at target; that nothing is, or
// that target does not exist, is no error. A mount in use is not forced: the
// error says that it is busy.
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

// ForceUnmount ends a mount whose server does not answer: requests under way
// fail, and what is still in use is taken out of sight, so that the kernel ends it
// when its last user has gone. Data that was not sent yet is lost.
func ForceUnmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		err = Detach(target)
	} else {
		err = nil
	}
	return err
}

// Detach takes the mount out of sight at once and lets the kernel end it when
// its last user has gone. It is for mounts whose server does not answer; data
// that was not written yet is lost.
func Detach(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach %s: %w", target, err)
	}
	return nil
}
