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

// Join moves a process to the cgroup p in every hierarchy. It creates p if needed.
func (h Hierarchies) Join(p string, pid int) error {
	if err := h.makeAll(p); err != nil {
		return fmt.Errorf("join cgroup %s: %w", p, err)
	}
	for _, m := range h.mounts() {
		if err := moveProcess(filepath.Join(m, p), pid); err != nil {
			return fmt.Errorf("join cgroup %s: %w", p, err)
		}
	}
	return nil
}

// Gather moves the processes in the root cgroup to the cgroup p, except for process 1 and kernel threads.
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
			if err != nil || pid == 1 || isKernelThread(pid) {
				continue
			}
			errs = append(errs, moveProcess(filepath.Join(m, p), pid))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("gather processes in cgroup %s: %w", p, err)
	}
	return nil
}

// makeAll creates p and its parents.
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

// moveProcess moves a process. A process that has exited is ignored.
func moveProcess(dir string, pid int) error {
	err := os.WriteFile(filepath.Join(dir, procsFile), []byte(strconv.Itoa(pid)), 0o644)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// isKernelThread reports whether a process is a kernel thread, which has no executable, or has exited.
func isKernelThread(pid int) bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err != nil
}
