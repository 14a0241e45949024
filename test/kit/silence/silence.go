// Package silence mounts a file system that never answers: every access to it blocks.
package silence

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
)

// Mount mounts such a file system at target. wake ends the blocked accesses with an error and
// unmounts it, as the end of the test does.
func Mount(t testing.TB, target string) (wake func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		need.Skip(t, "this machine has no FUSE", err)
	}
	if err := unix.Mount("silence", target,
		"fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		unix.Close(fd)
		need.Skip(t, "this machine cannot mount FUSE", err)
	}
	wake = sync.OnceFunc(func() {
		unix.Close(fd) // the kernel ends the accesses that wait for the server
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			t.Errorf("detach %s: %v", target, err)
		}
	})
	t.Cleanup(wake)
	return wake
}
