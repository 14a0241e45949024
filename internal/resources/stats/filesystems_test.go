package stats

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/moby/sys/mountinfo"

	"keelson/internal/host/machine"
)

// TestNodeFilesystems checks that file systems of the node are shown, by device, and that those mounted for pods are
// not.
func TestNodeFilesystems(t *testing.T) {
	const id = "4f0c8b348a593c08e5e283e427b45fc48b4fe2057e8ed3ae31e031d0382c4126"
	for name, c := range map[string]struct {
		mounts []string // device number, root, mount point, type, source
		want   []string // device, mount point
	}{
		"disks, by their first mount point": {
			mounts: []string{
				"8:2 / /data xfs /dev/sda2", "8:2 /some /mnt xfs /dev/sda2", "253:0 / /var ext4 /dev/mapper/vg-var",
			},
			want: []string{"/dev/mapper/vg-var at /var, 253:0", "/dev/sda2 at /data, 8:2"},
		},
		"the root's mount comes first": {
			mounts: []string{"8:1 /img /image ext4 /dev/sda1", "8:1 / / ext4 /dev/sda1"},
			want:   []string{"/dev/sda1 at /, 8:1"},
		},
		"tmpfs, by mount point": {
			mounts: []string{"0:24 / /run tmpfs tmpfs", "0:27 / /dev/shm tmpfs shm"},
			want:   []string{"/dev/shm at /dev/shm, 0:27", "/run at /run, 0:24"},
		},
		"file systems of boot loader and packages": {
			mounts: []string{
				"8:15 / /boot/efi vfat /dev/sda15", "7:0 / /snap/core/1 squashfs /dev/loop0", "0:31 / /tank zfs tank",
			},
			want: []string{"/dev/loop0 at /snap/core/1, 7:0", "/dev/sda15 at /boot/efi, 8:15", "tank at /tank, 0:31"},
		},
		"system overlays": {
			mounts: []string{"0:30 / / overlay overlay", "0:45 / /etc overlay overlay"},
			want:   []string{"overlay at /, 0:30", "overlay_0-30 at /, 0:30", "overlay_0-45 at /etc, 0:45"},
		},
		"kernel file systems are left out": {
			mounts: []string{
				"0:5 / /proc proc proc", "0:6 / /dev devtmpfs udev", "0:40 / /sys/fs/cgroup cgroup2 cgroup2",
				"0:4 net:[1] /run/netns/x nsfs nsfs",
			},
		},
		"network file systems are left out": {
			mounts: []string{"0:50 / /home nfs4 server:/home"},
		},
		"file systems of pods are left out": {
			mounts: []string{
				"0:60 / /agent/pods/1/volumes/kubernetes.io~secret/token tmpfs tmpfs",
				"8:32 / /agent/plugins/kubernetes.io/csi/driver/1/globalmount ext4 /dev/sdc",
				"0:61 / /run/containerd/io.containerd.grpc.v1.cri/sandboxes/" + id + "/shm tmpfs shm",
				"0:62 / /elsewhere/sandboxes/" + id + "/shm tmpfs shm",
				"0:63 / /elsewhere/io.containerd.runtime.v2.task/k8s.io/" + id + "/rootfs overlay overlay",
				"0:64 / /var/lib/containers/storage/overlay/" + id + "/merged overlay overlay",
			},
		},
		"the agent's own directory is the node's": {
			mounts: []string{"8:48 / /agent ext4 /dev/sdd"},
			want:   []string{"/dev/sdd at /agent, 8:48"},
		},
	} {
		var text string
		for i, m := range c.mounts {
			f := strings.Fields(m)
			text += fmt.Sprintf("%d 1 %s %s %s rw shared:1 - %s %s rw\n", 20+i, f[0], f[1], f[2], f[3], f[4])
		}
		mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(text), ofNode("/agent"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, fs := range nodeFilesystems(mounts) {
			got = append(got, fmt.Sprintf("%s at %s, %d:%d", fs.device, fs.mountpoint, fs.major, fs.minor))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFilesystemDisks checks that a disk is found by its name, or by its number if it is mounted under another name
// than the kernel counts it.
func TestFilesystemDisks(t *testing.T) {
	disks, err := machine.ReadDisks(fstest.MapFS{"proc/diskstats": {Data: []byte(
		" 253 0 dm-0 40 0 280 223 7 0 22 108 0 330 330\n 8 1 sda1 50 0 280 223 7 0 22 108 0 330 330\n")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fs   nodeFilesystem
		want uint64
	}{
		{nodeFilesystem{device: "/dev/mapper/vg-root", major: 253}, 40},
		{nodeFilesystem{device: "/dev/sda1", minor: 55}, 50}, // btrfs has a device number of its own
		{nodeFilesystem{device: "/run", minor: 24}, 0},
	} {
		if got := c.fs.disk(disks); got.Reads != c.want {
			t.Errorf("%s was read %d times, want %d", c.fs.device, got.Reads, c.want)
		}
	}
}
