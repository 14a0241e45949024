package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/logs"
)

// logDir is the directory of the pod's container logs.
func (r *Runner) logDir(p *v1.Pod) string { return logs.PodDir(r.cfg.PodLogsDir, pod.RefOf(p)) }

// legacyLogLink is the symlink in the flat directory where older log collectors look for a
// container's log.
func (r *Runner) legacyLogLink(ref pod.Ref, container, id string) string {
	return filepath.Join(r.cfg.ContainerLogsDir, logs.LinkName(ref, container, id))
}

// makeLogDir creates a log directory. It is readable by log collectors of any user.
func makeLogDir(dir string) error { return os.MkdirAll(dir, 0o755) }

// NextAttempt returns the attempt of a container's next instance if the runtime has no earlier one.
// Logs may have outlived their containers, and a restart must not overwrite them.
func (r *Runner) NextAttempt(ref pod.Ref, container string) (int, error) {
	dir := logs.ContainerDir(r.cfg.PodLogsDir, ref, container)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the log directory of container %s: %w", container, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return nextAttempt(names), nil
}

// nextAttempt returns one more than the highest attempt that has a log, whether rotated
// (3.log.20260102-030405, or 3.log-20260102 by other tools) or not.
func nextAttempt(files []string) int {
	next := 0
	for _, f := range files {
		number, _, ok := strings.Cut(f, ".log")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			next = max(next, int(n)+1)
		}
	}
	return next
}

// linkLegacyLog creates the legacy symlink to a container's log. It creates none if there is no
// log: a dangling link would look like a lost log.
func (r *Runner) linkLegacyLog(ref pod.Ref, container, id, log string) error {
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	link := r.legacyLogLink(ref, container, id)
	err := os.Symlink(log, link)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(r.cfg.ContainerLogsDir, 0o755); err == nil {
			err = os.Symlink(log, link)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// LinkLogs creates missing legacy symlinks of containers that an earlier agent started.
func (r *Runner) LinkLogs(have pod.Runtime) error {
	var errs []error
	for _, c := range have.Containers {
		if c.State >= pod.StateRunning && c.LogPath != "" {
			errs = append(errs, r.linkLegacyLog(have.Ref, c.Name, c.ID, c.LogPath))
		}
	}
	return errors.Join(errs...)
}

// removeLogs removes a container's log, its rotated logs and its legacy symlink.
func (r *Runner) removeLogs(ref pod.Ref, c pod.Container) error {
	var errs []error
	if c.LogPath != "" {
		dir, base := filepath.Split(c.LogPath)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), base) {
				errs = append(errs, removeFile(filepath.Join(dir, e.Name())))
			}
		}
	}
	errs = append(errs, removeFile(r.legacyLogLink(ref, c.Name, c.ID)))
	return errors.Join(errs...)
}

// RemoveDeadLinks removes legacy symlinks to logs that no longer exist: an earlier agent may have
// exited between removing the log and its symlink. Links for which live returns true stay, since a
// log does not exist for a moment while it is rotated.
func (r *Runner) RemoveDeadLinks(live func(log string) bool) error {
	entries, err := os.ReadDir(r.cfg.ContainerLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(r.cfg.ContainerLogsDir, e.Name())
		log, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(log, r.cfg.PodLogsDir+"/") {
			continue // not created by this agent
		}
		if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) && !live(log) {
			errs = append(errs, removeFile(link))
		}
	}
	return errors.Join(errs...)
}

// removeFile removes a file if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
