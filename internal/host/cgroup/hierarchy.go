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

// defaultMount is the usual mount point of cgroups.
const defaultMount = "/sys/fs/cgroup"

// v1Controllers are the mount options that are controllers.
var v1Controllers = []string{
	"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio",
	"net_cls", "net_prio", "perf_event", "rdma", "misc",
}

// Hierarchies are the mounted cgroup hierarchies.
type Hierarchies struct {
	// Unified is the mount point of the cgroup v2 tree, or empty on v1.
	Unified string
	// V1 has the mount point of each v1 controller. Several may share one. Named hierarchies without a controller have
	// the key name=...
	V1 map[string]string
	// Idle is the mount point of a v2 tree beside v1 hierarchies (hybrid mode). Nothing is created there, but cgroups
	// of pods are removed from it.
	Idle string
}

// Detect returns the hierarchies of this machine.
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
			continue // another mount of the same hierarchy
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

// check returns an error if a required controller is missing.
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

// V2 reports whether the machine has cgroup v2 only.
func (h Hierarchies) V2() bool { return h.Unified != "" }

// MissingFeature returns what the kernel lacks of the cgroup v2 features that the agent needs, or an empty string.
// Linux 5.8 has them all.
func (h Hierarchies) MissingFeature() string {
	if !h.V2() {
		return ""
	}
	const file = "cpu.stat"
	if _, err := os.Stat(filepath.Join(h.Unified, file)); errors.Is(err, fs.ErrNotExist) {
		return file + " of the root"
	}
	return ""
}

// mounts returns the mount points in which pods have cgroups.
func (h Hierarchies) mounts() []string {
	if h.Unified != "" {
		return []string{h.Unified}
	}
	return slices.Compact(slices.Sorted(maps.Values(h.V1)))
}

// all returns the mount points in which cgroups of pods may exist.
func (h Hierarchies) all() []string {
	if h.Idle != "" {
		return append(h.mounts(), h.Idle)
	}
	return h.mounts()
}

// make creates the cgroup p in every hierarchy, and reports whether any was missing. Its parent must exist.
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
		// Also for an existing one, because the agent that created it may have crashed in between.
		if m == h.V1["cpuset"] {
			if err := inheritCPUSet(dir); err != nil {
				return created, err
			}
		}
	}
	return created, nil
}

// exists reports whether p exists in every hierarchy.
func (h Hierarchies) exists(p string) bool {
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, p)); err != nil {
			return false
		}
	}
	return true
}

// rootControllers are the controllers that the parent of the pods' cgroups needs. The named hierarchy is systemd's.
var rootControllers = []string{"cpu", "cpuacct", "cpuset", "hugetlb", "memory", "name=systemd", "pids"}

// missingControllers returns what p lacks of the controllers that limit pods: on v1 missing directories, on v2
// controllers that its parents do not enable. Controllers that the machine does not have are ignored.
func (h Hierarchies) missingControllers(p string) ([]string, error) {
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

// write writes v to the cgroup p. Controllers that the machine does not have are skipped.
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

// inheritCPUSet initializes a new v1 cpuset from its parent. A cpuset without CPUs or memory nodes cannot have
// processes.
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

// controllers returns the v2 controllers that are available in dir.
func controllers(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("list controllers: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// enable enables all available controllers for the children of a v2 cgroup. It fails for a controller that this package
// uses. Other controllers that the kernel refuses are not available to containers.
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
