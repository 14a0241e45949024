package cgroup

import "path/filepath"

// LimitsSwap reports whether the kernel can limit swap, by the files below a mount such as /sys/fs/cgroup. On cgroup v2
// the root cgroup has no limits, so the file is looked for in the cgroups directly below it, such as system.slice. In a
// cgroup namespace the mount may show a cgroup below the root, which has the file itself.
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
