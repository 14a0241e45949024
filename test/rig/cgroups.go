package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchies lists the mount points of all cgroup hierarchies, and returns whether the only one is version 2.
func hierarchies() (dirs []string, unified bool, err error) {
	unified = true
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2", false
	})
	if err != nil {
		return nil, false, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	seen := map[string]bool{}
	for _, m := range mounts {
		key := m.FSType + m.VFSOptions
		if seen[key] || !strings.HasPrefix(m.Mountpoint, "/sys/fs/cgroup") {
			continue // the same hierarchy again, in a container
		}
		seen[key] = true
		unified = unified && m.FSType == "cgroup2"
		dirs = append(dirs, m.Mountpoint)
	}
	return dirs, unified, nil
}

// Cgroup makes the rig's own cgroup if it does not exist, and returns its name.
func (r *Rig) Cgroup() (string, error) { return r.n.cgroup(), r.makeCgroup() }

// makeCgroup makes the rig's own cgroup in every hierarchy. A kubelet uses it as its cgroup root, so it must allow
// children.
func (r *Rig) makeCgroup() error {
	dirs, unified, err := hierarchies()
	if err != nil {
		return err
	}
	for _, top := range dirs {
		dir := filepath.Join(top, r.n.cgroup())
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
		// A new cpuset of version 1 is empty, and an empty one accepts no process.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			have, err := os.ReadFile(filepath.Join(top, f))
			if err != nil || unified {
				continue // another controller's hierarchy
			}
			if err := os.WriteFile(filepath.Join(dir, f), have, 0); err != nil {
				return fmt.Errorf("make cgroup: %w", err)
			}
		}
		if unified {
			if err := delegate(top, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate enables all controllers for the children of a version 2 cgroup.
func delegate(top, dir string) error {
	for _, d := range []string{top, dir} {
		have, err := os.ReadFile(filepath.Join(d, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("delegate cgroup: %w", err)
		}
		for _, c := range strings.Fields(string(have)) {
			if err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
				return fmt.Errorf("delegate cgroup: controller %s: %w", c, err)
			}
		}
	}
	return nil
}

// removeCgroup kills the processes that are left in a rig's cgroups and removes the cgroups.
func removeCgroup(n number) error {
	dirs, _, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, top := range dirs {
		errs = append(errs, removeTree(filepath.Join(top, n.cgroup())))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup, its children first.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, f := range bytes.Fields(pids) {
		pid, err := strconv.Atoi(string(f))
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		w, err := identify(pid)
		if err != nil {
			continue // ended meanwhile
		}
		p := &process{who: w}
		p.signal(unix.SIGKILL)
		if err := await(w); err != nil {
			return fmt.Errorf("remove cgroup %s: wait for process %d: %w", dir, pid, err)
		}
	}
	return removeEmptied(dir)
}

// removeEmptied removes a cgroup whose processes have ended. The threads of a process may keep the cgroup busy when the
// process is no longer listed. A cgroup of version 1 has no event for the end of the last thread, so removal is
// retried.
func removeEmptied(dir string) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
}
