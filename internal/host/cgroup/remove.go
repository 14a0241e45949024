package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/clock"
)

// The back-off between attempts to remove a cgroup whose processes were killed but have not exited. The kernel does
// not notify when the last one is reaped.
const (
	removeWaitFirst = time.Millisecond
	removeWaitLast  = 100 * time.Millisecond
	removeTries     = 20 // two seconds in total
)

// RemovePod kills all processes in the pod's cgroup and removes it from all hierarchies. It does nothing for a pod
// without a cgroup.
func (t *Tree) RemovePod(ctx context.Context, uid types.UID) error {
	for _, n := range t.placesOf(uid) {
		began := time.Now()
		err := t.remove(ctx, n)
		t.cfg.Observe(Destroy, time.Since(began))
		if err != nil {
			return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
		}
	}
	return nil
}

func (t *Tree) remove(ctx context.Context, n name) error {
	p := n.path(t.cfg.Driver)
	backoff := clock.Backoff(removeWaitFirst, removeWaitLast)
	for try := 1; ; try++ {
		var errs []error
		for _, m := range t.cfg.Hierarchies.all() {
			if err := removeTree(filepath.Join(m, p)); err != nil {
				errs = append(errs, err)
			}
		}
		if t.units != nil && len(errs) == 0 {
			return t.units.stop(n)
		}
		if len(errs) == 0 || try == removeTries {
			return errors.Join(errs...)
		}
		if !clock.Sleep(ctx, backoff.Step()) {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
}

// removeTree kills the processes of a cgroup and its descendants, and removes these from the leaves up. A process that
// does not exit blocks only its own branch. The caller retries.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(append(errs, killAll(dir))...); err != nil {
		return err
	}
	// rmdir and not RemoveAll, because the files of a cgroup cannot be removed.
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// killAll kills all processes of a cgroup. Processes and cgroups that disappear meanwhile are ignored.
func killAll(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, procsFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a threaded cgroup, whose processes are listed by its parent
	}
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid <= 1 || pid == os.Getpid() {
			// 0 is a process of another namespace. Process 1 and the agent must never be killed.
			return fmt.Errorf("kill processes of %s: refuse process id %q", dir, strings.TrimSpace(line))
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill process %d of %s: %w", pid, dir, err)
		}
	}
	return nil
}
