package differ

import (
	"os"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"keelson/test/kit/await"
	"keelson/test/kit/need"
	"keelson/test/rig"
)

// A node's disk is on a block device, which upstream's agent counts once, also with bind mounts from it. After fillDisk
// it has less free space than the threshold. Its device is detached as soon as it is unmounted.
func TestDiskOfANode(t *testing.T) {
	need.Root(t, "mounting")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Skip(t, "this machine has no loop devices", err)
	}
	s := &side{rig: &rig.Rig{Dir: t.TempDir()}}
	if err := s.makeDisk(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kubelet = &rig.Kubelet{Root: s.rig.Dir + "/kubelet"}
	mounted := true
	unmount := func() {
		if mounted {
			mounted = false
			if err := unix.Unmount(s.kubelet.Root, 0); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(unmount)
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(s.kubelet.Root))
	if err != nil || len(mounts) != 1 {
		t.Fatal(mounts, err)
	}
	device := mounts[0].Source
	if !strings.HasPrefix(device, "/dev/loop") {
		t.Errorf("the disk is %s, of a %s", device, mounts[0].FSType)
	}
	if entries, err := os.ReadDir(s.kubelet.Root); err != nil || len(entries) > 0 {
		t.Errorf("a new disk has %v, %v", entries, err)
	}
	left := func() int {
		var disk unix.Statfs_t
		if err := unix.Statfs(s.kubelet.Root, &disk); err != nil {
			t.Fatal(err)
		}
		return int(100 * disk.Bavail / disk.Blocks)
	}
	if n := left(); n < 90 {
		t.Errorf("a new disk has %d percent left", n)
	}
	if err := s.fillDisk(); err != nil {
		t.Fatal(err)
	}
	if n := left(); n < diskLeft-1 || n > diskLeft {
		t.Errorf("a filled disk has %d percent left, want %d", n, diskLeft)
	}
	unmount()
	file := "/sys/block/" + strings.TrimPrefix(device, "/dev/") + "/loop/backing_file"
	await.Until(t, device+" is detached", func() (string, bool) {
		data, _ := os.ReadFile(file)
		return string(data), !strings.Contains(string(data), "differ-disk")
	})
}
