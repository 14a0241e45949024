package cgroup

import (
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// startControllers are the controllers of cgroup v1 in whose hierarchies the start of a cgroup is looked for.
var startControllers = []string{"blkio", "cpu", "cpuacct", "devices", "memory", "pids"}

// created is the creation time of the cgroup at path: the earliest modification time of its directories and of a file
// in each that is never written, or by if that is earlier.
//
// The kernel keeps these times with the inodes it has in memory. It may drop an inode that is not in use, and the next
// lookup makes another with the time of that lookup. So the result may be too late; it is never too early.
func (h Hierarchies) created(path string, by time.Time) time.Time {
	look := func(name string) {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return // it does not exist
		}
		if at := time.Unix(st.Mtim.Unix()); at.Before(by) {
			by = at
		}
	}
	if h.V2() {
		look(filepath.Join(h.Unified, path, "cgroup.events"))
		return by
	}
	for _, controller := range startControllers {
		if mount := h.V1[controller]; mount != "" {
			dir := filepath.Join(mount, path)
			look(dir)
			look(filepath.Join(dir, "cgroup.clone_children"))
		}
	}
	return by
}
