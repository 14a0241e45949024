package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Join moves a process into the cgroup p of every hierarchy. What is missing of the
// path is made, and stays.
func (h Hierarchies) Join(p string, pid int) error {
	if err := h.makeAll(p); err != nil {
		return fmt.Errorf("join cgroup %s: %w", p, err)
	}
	for _, m := range h.mounts() {
		if err := enter(filepath.Join(m, p), pid); err != nil {
			return fmt.Errorf("join cgroup %s: %w", p, err)
		}
	}
	return nil
}

// Gather moves the processes that are in the root of the hierarchies into the cgroup
// p, all but the first and those of the kernel: what the machine runs beside pods.
func (h Hierarchies) Gather(p string) error {
	if err := h.makeAll(p); err != nil {
		return fmt.Errorf("gather processes in cgroup %s: %w", p, err)
	}
	var errs []error
	for _, m := range h.mounts() {
		text, err := os.ReadFile(filepath.Join(m, procsFile))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for line := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(line)
			if err != nil || pid == 1 || ofKernel(pid) {
				continue
			}
			errs = append(errs, enter(filepath.Join(m, p), pid))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("gather processes in cgroup %s: %w", p, err)
	}
	return nil
}

// makeAll makes p and all above it.
func (h Hierarchies) makeAll(p string) error {
	at := "/"
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+p), "/"), "/") {
		at = path.Join(at, name)
		if _, err := h.make(at); err != nil {
			return err
		}
	}
	return nil
}

// enter moves a process; one that has ended meanwhile need not.
func enter(dir string, pid int) error {
	err := os.WriteFile(filepath.Join(dir, procsFile), []byte(strconv.Itoa(pid)), 0o644)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// ofKernel reports whether a process is the kernel's own, which has no program, or
// has ended.
func ofKernel(pid int) bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err != nil
}
