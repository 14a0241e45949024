package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// defaultMount is where distributions mount control groups.
const defaultMount = "/sys/fs/cgroup"

// v1Controllers are the mount options that name a controller.
var v1Controllers = []string{
	"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio",
	"net_cls", "net_prio", "perf_event", "rdma", "misc",
}

// Hierarchies are where control groups are mounted.
type Hierarchies struct {
	// Unified is the mount point of the cgroup v2 tree, or empty on v1.
	Unified string
	// V1 has the mount point of each controller; several may share one. Named
	// hierarchies without a controller are there as name=….
	V1 map[string]string
	// Idle is a v2 tree that stands beside v1 ones (a hybrid machine). Nothing is
	// made there, but what others left for a pod is removed with it.
	Idle string
}

// Detect finds the hierarchies of this machine.
func Detect() (Hierarchies, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(defaultMount, &st); err != nil {
		return Hierarchies{}, fmt.Errorf("find control groups at %s: %w", defaultMount, err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return Hierarchies{Unified: defaultMount}, nil
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return Hierarchies{}, fmt.Errorf("find control groups: %w", err)
	}
	h := Hierarchies{V1: map[string]string{}}
	for _, m := range mounts {
		if !strings.HasPrefix(m.Mountpoint, defaultMount+"/") {
			continue // somebody's private view
		}
		if m.FSType == "cgroup2" {
			h.Idle = m.Mountpoint
			continue
		}
		for o := range strings.SplitSeq(m.VFSOptions, ",") {
			if slices.Contains(v1Controllers, o) || strings.HasPrefix(o, "name=") {
				h.V1[o] = m.Mountpoint
			}
		}
	}
	return h, h.check()
}

// check names the controllers without which pods cannot be kept apart.
func (h Hierarchies) check() error {
	if h.Unified != "" {
		return nil
	}
	var missing []string
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory"} {
		if h.V1[c] == "" {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("system validation failed - Following Cgroup subsystem not mounted: %v", missing)
	}
	return nil
}

// V2 reports whether the machine has the unified tree only.
func (h Hierarchies) V2() bool { return h.Unified != "" }

// Lack is what the kernel does not have of cgroup v2 that pods and figures are told
// by; empty if it has all. Linux 5.8 was the first to.
func (h Hierarchies) Lack() string {
	if !h.V2() {
		return ""
	}
	const file = "cpu.stat"
	if _, err := os.Stat(filepath.Join(h.Unified, file)); errors.Is(err, fs.ErrNotExist) {
		return file + " of the root"
	}
	return ""
}

// mounts are the mount points in which pods have directories.
func (h Hierarchies) mounts() []string {
	if h.Unified != "" {
		return []string{h.Unified}
	}
	return slices.Compact(slices.Sorted(maps.Values(h.V1)))
}

// all are the mount points in which something of a pod may be found.
func (h Hierarchies) all() []string {
	if h.Idle != "" {
		return append(h.mounts(), h.Idle)
	}
	return h.mounts()
}

// make creates the directory of p, whose parent exists, in every hierarchy, and
// reports whether any was missing.
func (h Hierarchies) make(p string) (created bool, err error) {
	for _, m := range h.mounts() {
		dir := filepath.Join(m, p)
		if h.Unified != "" {
			if err := enable(filepath.Dir(dir)); err != nil {
				return created, err
			}
		}
		err := os.Mkdir(dir, 0o755)
		switch {
		case err == nil:
			created = true
		case !errors.Is(err, fs.ErrExist):
			return created, fmt.Errorf("create cgroup: %w", err)
		}
		// Even where it existed: who made it may have died in between.
		if m == h.V1["cpuset"] {
			if err := inheritCPUSet(dir); err != nil {
				return created, err
			}
		}
	}
	return created, nil
}

// exists reports whether p is there in every hierarchy.
func (h Hierarchies) exists(p string) bool {
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, p)); err != nil {
			return false
		}
	}
	return true
}

// rootControllers are those that a cgroup must have before pods' cgroups are made in it;
// the named hierarchy is systemd's.
var rootControllers = []string{"cpu", "cpuacct", "cpuset", "hugetlb", "memory", "name=systemd", "pids"}

// lacks names what p does not have of the controllers that pods are limited by: on v1 its
// directories that are missing, on v2 what its parents do not hand on. A controller that
// the machine does not have is not missed.
func (h Hierarchies) lacks(p string) ([]string, error) {
	var missing []string
	if h.Unified == "" {
		for _, c := range rootControllers {
			mount, ok := h.V1[c]
			if !ok {
				continue
			}
			dir := filepath.Join(mount, p)
			_, err := os.Stat(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("look for cgroup: %w", err)
			}
			if err != nil && !slices.Contains(missing, dir) {
				missing = append(missing, dir)
			}
		}
		return missing, nil
	}
	whole, err := controllers(h.Unified)
	if err != nil {
		return nil, err
	}
	have, err := controllers(filepath.Join(h.Unified, p))
	if err != nil {
		return nil, err
	}
	for _, c := range rootControllers {
		if slices.Contains(whole, c) && !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// write puts v into the cgroup p. Controllers that the machine does not have are
// passed over.
func (h Hierarchies) write(p string, v Values) error {
	if h.Unified == "" {
		for _, s := range v.settingsV1() {
			if mount, ok := h.V1[s.controller]; ok {
				if err := put(filepath.Join(mount, p), s); err != nil {
					return err
				}
			}
		}
		return nil
	}
	dir := filepath.Join(h.Unified, p)
	have, err := controllers(dir)
	if err != nil {
		return err
	}
	for _, s := range v.settingsV2() {
		if slices.Contains(have, s.controller) {
			if err := put(dir, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func put(dir string, s setting) error {
	file := filepath.Join(dir, s.file)
	if s.optional {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err := os.WriteFile(file, []byte(s.value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", s.file, s.value, err)
	}
	return nil
}

// inheritCPUSet fills a new v1 cpuset from its parent: a group without CPUs or
// memory nodes takes no process.
func inheritCPUSet(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("read cpuset: %w", err)
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		from, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return fmt.Errorf("read cpuset: %w", err)
		}
		if err := put(dir, setting{file: file, value: strings.TrimSpace(string(from))}); err != nil {
			return err
		}
	}
	return nil
}

// controllers lists the v2 controllers that work in dir.
func controllers(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("list controllers: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// enable hands every controller of a v2 group on to its children. Those that this
// package writes must be handed on; of the others, what the kernel refuses is
// simply not there for containers.
func enable(dir string) error {
	have, err := controllers(dir)
	if err != nil {
		return err
	}
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return fmt.Errorf("list controllers of children: %w", err)
	}
	for _, c := range have {
		if slices.Contains(strings.Fields(string(on)), c) {
			continue
		}
		err := put(dir, setting{file: "cgroup.subtree_control", value: "+" + c})
		if err != nil && slices.Contains([]string{"cpu", "cpuset", "memory", "pids", "hugetlb"}, c) {
			return fmt.Errorf("enable controller for children: %w", err)
		}
	}
	return nil
}
