package cgroup

import (
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// startControllers are the v1 controllers in whose hierarchies the creation time of a cgroup is looked for.
var startControllers = []string{"blkio", "cpu", "cpuacct", "devices", "memory", "pids"}

// created returns the creation time of the cgroup at path: the earliest modification time of its directories and of a
// file in each that is never written, or by if that is earlier.
//
// The kernel keeps these times with the inodes in memory. It may drop an inode that is not in use, and the next lookup
// creates another one with the current time. So the result may be too late, but never too early.
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
