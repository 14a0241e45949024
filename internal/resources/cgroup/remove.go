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
)

// removeWait grows from the first to the last between tries to remove a cgroup
// whose processes were killed but are not gone: the kernel tells nobody when the
// last one is reaped, so there is nothing to wait for but time.
const (
	removeWaitFirst = time.Millisecond
	removeWaitLast  = 100 * time.Millisecond
	removeTries     = 20 // two seconds in all
)

// RemovePod kills what still runs in the pod's cgroup and removes it, everywhere.
// A pod without a cgroup is no error.
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
	wait := removeWaitFirst
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
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		case <-time.After(wait):
			wait = min(2*wait, removeWaitLast)
		}
	}
}

// removeTree kills the processes of a cgroup and of those below it, and removes
// them from the leaves up. A process that will not die holds up its own branch
// only; the caller tries again.
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
	// rmdir, not RemoveAll: the files of a cgroup go with it and cannot be
	// removed before.
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// killAll kills every process in a cgroup. One that ends by itself meanwhile is
// no error, nor is a cgroup that does.
func killAll(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, procsFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // it has threads of processes that the group above it lists
	}
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid <= 1 || pid == os.Getpid() {
			// 0 stands for a process of another namespace; the others are not ours
			// to kill whatever the file says.
			return fmt.Errorf("kill processes of %s: refuse process id %q", dir, strings.TrimSpace(line))
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill process %d of %s: %w", pid, dir, err)
		}
	}
	return nil
}
