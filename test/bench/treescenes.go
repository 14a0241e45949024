package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"keelson/internal/storage/mount"
)

// treeFiles is the number of files in the tree: as many as a database or a build cache may have.
const treeFiles = 1_000_000

// treeRounds is how often each walk is done. The shortest time counts: the tree is in memory, and other processes can
// only make a walk slower.
const treeRounds = 3

// playTree sets the group of a tree with a million files, as for fsGroup: first a tree in which all files have the
// group already, then one in which none has it. For comparison, a plain parallel walk reads or changes the tree.
func playTree(_ context.Context, r *run) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root")
	}
	dir, err := os.MkdirTemp("", "bench-tree-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := mount.Tmpfs(dir, 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mount.Unmount(dir)) }()
	began := time.Now()
	if err := growTree(dir, treeFiles); err != nil {
		return err
	}
	r.say("%d files made in %.1f s", treeFiles, time.Since(began).Seconds())

	gid := 5000
	if err := mount.SetGroup(dir, gid, false); err != nil {
		return err
	}
	for _, walk := range []struct {
		what  string
		ours  func() error
		plain func() error
	}{
		{"all match, beside a walk that looks, side by side", func() error { return mount.SetGroup(dir, gid, false) },
			func() error { return lookAll(dir) }},
		{"none match, beside a walk that changes, side by side",
			func() error { gid++; return mount.SetGroup(dir, gid, false) },
			func() error { gid++; return changeAll(dir, gid) }},
	} {
		best := map[string]float64{}
		for range treeRounds {
			for who, fn := range map[string]func() error{Ours: walk.ours, Hand: walk.plain} {
				took, err := timed(fn)
				if err != nil {
					return fmt.Errorf("%s: %w", walk.what, err)
				}
				if have, ok := best[who]; !ok || took < have {
					best[who] = took
				}
			}
		}
		r.say("%s: %.2f s, by hand %.2f s", walk.what, best[Ours], best[Hand])
		r.report.Numbers("V2", fmt.Sprintf("fsGroup on %d files, %s", treeFiles, walk.what), "tmpfs", "s", best)
	}
	return nil
}

func timed(fn func() error) (seconds float64, err error) {
	began := time.Now()
	err = fn()
	return time.Since(began).Seconds(), err
}

// growTree makes directories with a thousand files each.
func growTree(dir string, files int) error {
	for i := range files / 1000 {
		sub := filepath.Join(dir, strconv.Itoa(i/30), strconv.Itoa(i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		for j := range 1000 {
			if err := unix.Mknod(filepath.Join(sub, strconv.Itoa(j)), unix.S_IFREG|0o600, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAll reads the metadata of each file of a tree, and changeAll sets the group and mode of each. Both use paths, and
// walk directories in parallel.
func lookAll(root string) error {
	return walkAll(root, func(string, fs.FileInfo) error { return nil })
}

func changeAll(root string, gid int) error {
	return walkAll(root, func(path string, info fs.FileInfo) error {
		if err := os.Lchown(path, -1, gid); err != nil {
			return err
		}
		mode := info.Mode() | 0o660
		if info.IsDir() {
			mode |= 0o110 | fs.ModeSetgid
		}
		return os.Chmod(path, mode)
	})
}

func walkAll(root string, do func(string, fs.FileInfo) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	fail := func(err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	}
	hands := make(chan struct{}, runtime.GOMAXPROCS(0))
	var walk func(dir string)
	walk = func(dir string) {
		list, err := os.ReadDir(dir)
		fail(err)
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			info, err := os.Lstat(path)
			if err == nil {
				err = do(path, info)
			}
			fail(err)
			if !e.IsDir() {
				continue
			}
			select {
			case hands <- struct{}{}:
				wg.Go(func() { walk(path); <-hands })
			default:
				walk(path)
			}
		}
	}
	walk(root)
	wg.Wait()
	return errors.Join(errs...)
}
