package stats

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"keelson/internal/host/machine"
)

// nodeFilesystem is a file system of the node.
type nodeFilesystem struct {
	device       string
	mountpoint   string
	major, minor int
}

// shownTypes are the types of file systems that are shown, besides those that begin with ext. Network file systems are
// excluded, because a server that does not answer would block the scrape.
var shownTypes = strings.Fields(`
	btrfs exfat f2fs fat hfs hfsplus iso9660 jfs msdos ntfs overlay reiserfs squashfs tmpfs udf vfat xfs zfs
`)

// ofNode filters for mounts of the node's own file systems. Mounts of pods and containers are excluded (decision 0112).
func ofNode(rootDir string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) {
		shown := strings.HasPrefix(m.FSType, "ext") || slices.Contains(shownTypes, m.FSType)
		return !shown || ofPod(m, rootDir), false
	}
}

// nodeFilesystems returns the file systems of the mounts by device. A device that is mounted more than once is shown
// with its first mount point, or the root.
func nodeFilesystems(mounts []*mountinfo.Info) []nodeFilesystem {
	found := map[string]nodeFilesystem{}
	for _, m := range mounts {
		device := m.Source
		switch m.FSType {
		case "tmpfs":
			device = m.Mountpoint
		case "overlay":
			device = fmt.Sprintf("%s_%d-%d", m.Source, m.Major, m.Minor) // all of them have the same source
		}
		if _, known := found[device]; !known {
			found[device] = nodeFilesystem{device, m.Mountpoint, m.Major, m.Minor}
		}
		if m.Mountpoint == "/" {
			found[m.Source] = nodeFilesystem{m.Source, m.Mountpoint, m.Major, m.Minor}
		}
	}
	var out []nodeFilesystem
	for _, device := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[device])
	}
	return out
}

// ofPod reports whether the agent or the runtime mounted a file system for a pod: below the agent's root directory, or
// as the root or the shared memory of a container.
func ofPod(m *mountinfo.Info, rootDir string) bool {
	if strings.HasPrefix(m.Mountpoint, rootDir+"/") || strings.HasPrefix(m.Mountpoint, "/run/containerd/") {
		return true
	}
	switch path.Base(m.Mountpoint) {
	case "rootfs", "merged":
		return m.FSType == "overlay"
	case "shm":
		return m.Source == "shm" && m.Mountpoint != "/dev/shm"
	}
	return false
}

// disk returns the counters of the disk of a file system. The disk is found by the device of the mount, or by its
// number if the kernel has another name for it. Without a disk the counters are zero.
func (fs nodeFilesystem) disk(disks map[string]machine.Disk) machine.Disk {
	if d, ok := disks[fs.device]; ok || fs.major == 0 {
		return d
	}
	for _, d := range disks {
		if d.Major == fs.major && d.Minor == fs.minor {
			return d
		}
	}
	return machine.Disk{}
}
