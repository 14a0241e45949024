package app

import (
	"path/filepath"

	goselinux "github.com/opencontainers/selinux/go-selinux"

	"keelson/internal/runtime/container"
	"keelson/internal/storage/selinux"
	"keelson/internal/storage/volume/persistent"
)

// labels is the node's SELinux; nil if it has none.
func (l Links) labels() persistent.Labels {
	if l.SELinux != nil {
		return l.SELinux
	}
	if host := selinux.Here(); host != nil {
		return host
	}
	return nil
}

// labeller sets the SELinux label of a file; nil where there is no SELinux.
func labeller() func(path, label string) error {
	if !goselinux.GetEnabled() {
		return nil
	}
	return goselinux.SetFileLabel
}

// kernel finds out what the kernel offers to containers.
func (a *agent) kernel() container.Kernel {
	k := container.Kernel{CgroupV2: a.hierarchiesV2(), SELinux: a.links.labels() != nil}
	// The runtime is told sizes in the order of the page size, as 2MB and 1GB.
	for _, size := range a.machine.PageSizes() {
		k.HugePageSizes = append(k.HugePageSizes, pageName(size))
	}
	k.SwapController = limitsSwap("/sys/fs/cgroup", k.CgroupV2)
	return k
}

// limitsSwap tells whether the kernel can limit swap. On version 2 the root itself
// has no limits, so that the cgroups below it tell; the system's services have one,
// or the agent. Where the agent's view begins below the root, its own top tells.
func limitsSwap(tree string, v2 bool) bool {
	files := []string{"memory/memory.memsw.limit_in_bytes"}
	if v2 {
		files = []string{"memory.swap.max", "*/memory.swap.max"}
	}
	for _, f := range files {
		if found, err := filepath.Glob(filepath.Join(tree, f)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

func pageName(bytes uint64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for bytes >= 1024 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return itoa(bytes) + units[i]
}
