package cgroup

import "path/filepath"

// LimitsSwap reports whether the kernel can limit swap, by the files below a mount such as /sys/fs/cgroup. On version 2
// the root has no limits, so the cgroups below it show the file; the system's services have one, or the agent. Where
// the agent's view begins below the root, its own top shows it.
func LimitsSwap(mount string, v2 bool) bool {
	files := []string{"memory/memory.memsw.limit_in_bytes"}
	if v2 {
		files = []string{"memory.swap.max", "*/memory.swap.max"}
	}
	for _, f := range files {
		if found, err := filepath.Glob(filepath.Join(mount, f)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
