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

// logDir is the directory that the pod's containers log to.
func (r *Runner) logDir(p *v1.Pod) string { return logs.PodDir(r.cfg.PodLogsDir, pod.RefOf(p)) }

// legacyLogLink is the flat name under which older log collectors look for a
// container's log.
func (r *Runner) legacyLogLink(ref pod.Ref, container, id string) string {
	return filepath.Join(r.cfg.ContainerLogsDir, logs.LinkName(ref, container, id))
}

// makeLogDir makes a directory of logs. Collectors of logs may read it.
func makeLogDir(dir string) error { return os.MkdirAll(dir, 0o755) }

// NextAttempt is the attempt of a container's next instance where the runtime
// remembers no earlier one: logs may have outlived the containers that wrote
// them, and a restart must not write over them.
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

// nextAttempt is one more than the highest attempt that left a log, rotated
// (3.log.20260102-030405, by others than this agent 3.log-20260102) or not.
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

// linkLegacyLog gives a container's log the flat name that older collectors
// follow. There is none if the container has no log: a link to nowhere would
// look like a log that was lost.
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

// LinkLogs gives the logs of containers that an earlier agent started their flat
// names, where it died between the two.
func (r *Runner) LinkLogs(have pod.Runtime) error {
	var errs []error
	for _, c := range have.Containers {
		if c.State >= pod.StateRunning && c.LogPath != "" {
			errs = append(errs, r.linkLegacyLog(have.Ref, c.Name, c.ID, c.LogPath))
		}
	}
	return errors.Join(errs...)
}

// removeLogs removes a container's log, the files that it was rotated to, and
// its flat name.
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

// RemoveDeadLinks removes symlinks to logs that no longer exist: an earlier agent may have
// died after it removed the log, or left dead links to a periodic sweep. Links of live logs
// stay: a log does not exist for a moment while it is rotated.
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
			continue // somebody else's
		}
		if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) && !live(log) {
			errs = append(errs, removeFile(link))
		}
	}
	return errors.Join(errs...)
}

// removeFile removes a file that may be gone already.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
