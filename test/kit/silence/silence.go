// Package silence is a file system that never answers: each caller waits.
package silence

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
)

// Mount mounts one at target. Wake ends what waits, with an error, and takes it off;
// the end of the test does so too.
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
		unix.Close(fd) // the kernel ends what waits for the server
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			t.Errorf("detach %s: %v", target, err)
		}
	})
	t.Cleanup(wake)
	return wake
}
