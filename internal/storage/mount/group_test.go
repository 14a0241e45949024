package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
)

// setGroupSlowly is a simple implementation of SetGroup.
func setGroupSlowly(root string, g Grant) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if err := os.Lchown(path, -1, g.GID); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return nil
		}
		return unix.Chmod(path, st.Mode&^unix.S_IFMT|g.bits(st.Mode))
	})
}

// grow creates the same tree for the same seed.
func grow(t testing.TB, root string, seed uint64) (objects int) {
	r := rand.New(rand.NewPCG(seed, 1))
	modes := []os.FileMode{
		0,
		0o400,
		0o600,
		0o644,
		0o666,
		0o755,
		0o770 | os.ModeSetgid,
		0o711 | os.ModeSetuid,
		0o777 | os.ModeSticky,
	}
	var fill func(dir string, depth int)
	fill = func(dir string, depth int) {
		for i := range r.IntN(14) {
			objects++
			path := filepath.Join(dir, strconv.Itoa(i))
			var err error
			switch k := r.IntN(10); {
			case k < 3 && depth < 3:
				if err = os.Mkdir(path, 0o700); err == nil {
					fill(path, depth+1)
				}
			case k == 3:
				err = os.Symlink("/etc/passwd", path)
			case k == 4:
				err = unix.Mkfifo(path, 0o600)
			default:
				err = os.WriteFile(path, nil, 0o600)
			}
			if err == nil {
				err = os.Lchown(path, r.IntN(3), []int{0, 7, 3000}[r.IntN(3)])
			}
			if st, lerr := os.Lstat(path); err == nil && lerr == nil && st.Mode()&fs.ModeSymlink == 0 {
				err = os.Chmod(path, modes[r.IntN(len(modes))])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(root, 0)
	return objects + 1
}

func recordTree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		out[rel] = modeOf(t, path)
		return err
	}))
	return out
}

func TestSetGroupMatchesReference(t *testing.T) {
	dir := room(t)
	for seed := range uint64(12) {
		g := Grant{GID: 3000, ReadOnly: seed%2 == 1, Done: new(atomic.Int64)}
		slow, quick := mkdir(t, dir, fmt.Sprint("slow", seed)), mkdir(t, dir, fmt.Sprint("quick", seed))
		objects := grow(t, slow, seed)
		grow(t, quick, seed)
		must(t, setGroupSlowly(slow, g))
		must(t, g.Apply(t.Context(), quick))
		want, have := recordTree(t, slow), recordTree(t, quick)
		for path, w := range want {
			if have[path] != w {
				t.Errorf("seed %d: %s is %s, want %s", seed, path, have[path], w)
			}
		}
		if n := g.Done.Load(); int(n) != objects || len(have) != objects {
			t.Errorf("seed %d: %d of %d objects counted", seed, n, objects)
		}
	}
}

// The policy OnRootMismatch only checks the root, so it must be changed last.
func TestSetGroupChangesRootLast(t *testing.T) {
	tree := mkdir(t, room(t), "tree")
	for i := range 100 {
		write(t, filepath.Join(mkdir(t, tree, fmt.Sprint("d", i)), "f"), "")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := (Grant{GID: 3000}).Apply(ctx, tree); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply = %v, want that it ended early", err)
	}
	if has, err := HasGroup(tree, 3000, false); err != nil || has {
		t.Errorf("HasGroup = %v, %v of a tree that was not finished", has, err)
	}
	must(t, SetGroup(tree, 3000, false))
	if has, err := HasGroup(tree, 3000, false); err != nil || !has {
		t.Errorf("HasGroup = %v, %v of a finished tree", has, err)
	}
}

func TestSetGroupDeepTree(t *testing.T) {
	tree := mkdir(t, room(t), "tree")
	at, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	name := strings.Repeat("n", 100)
	for range 600 { // far beyond PATH_MAX and the limit of open files
		must(t, unix.Mkdirat(at, name, 0o700))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(at)
		at = next
	}
	defer unix.Close(at)
	must(t, SetGroup(tree, 3000, false))
	var st unix.Stat_t
	must(t, unix.Fstat(at, &st))
	if st.Gid != 3000 || st.Mode&0o7777 != 0o2770 {
		t.Errorf("the deepest directory is %o of group %d", st.Mode, st.Gid)
	}
	must(t, RemoveTree(tree))
}

// A container replaces a directory by a symlink to the host during the walk.
func TestSetGroupSymlinkRace(t *testing.T) {
	dir := room(t)
	tree, host := mkdir(t, dir, "tree"), mkdir(t, dir, "host")
	write(t, filepath.Join(host, "f"), "host")
	write(t, filepath.Join(mkdir(t, tree, "d"), "f"), "mine")
	must(t, os.Symlink(host, filepath.Join(tree, "evil")))
	must(t, os.Symlink(filepath.Join(host, "f"), filepath.Join(tree, "d", "g")))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(tree, "d"), unix.AT_FDCWD,
				filepath.Join(tree, "evil"),
				unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range 3000 {
		if err := SetGroup(tree, 3000+i, false); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	must(t, <-done)
	if got, want := modeOf(t, host)+modeOf(t, filepath.Join(host, "f")), "40755 0:0100644 0:0"; got != want {
		t.Errorf("the host's files are %s, want them untouched: %s", got, want)
	}
}

// filesWanted is the number of files of the benchmark's tree. By default it is small, since
// creating a million files takes a while.
const filesWanted = "KEELSON_BENCH_FILES"

// BenchmarkSetGroup measures trees in which no and all files have the group, beside plain walks
// that only stat each object, sequentially and in parallel.
func BenchmarkSetGroup(b *testing.B) {
	files := 20000
	if s := os.Getenv(filesWanted); s != "" {
		var err error
		if files, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	need.Root(b, "mounting")
	dir := b.TempDir()
	if err := Tmpfs(dir, 0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := Unmount(dir); err != nil {
			b.Error(err)
		}
	})
	for i := range files / 1000 {
		sub := filepath.Join(dir, strconv.Itoa(i/30), strconv.Itoa(i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 1000 {
			if err := unix.Mknod(filepath.Join(sub, strconv.Itoa(j)), unix.S_IFREG|0o600, 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	gid := 5000
	if err := SetGroup(dir, gid, false); err != nil {
		b.Fatal(err)
	}
	run := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			began := time.Now()
			for range b.N {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(time.Since(began).Seconds()/float64(b.N), "s/tree")
			b.ReportMetric(float64(files), "files")
		})
	}
	run("looking, one walker", func() error {
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				_, err = d.Info()
			}
			return err
		})
	})
	run("looking, parallel", func() error { return lookInParallel(dir) })
	run("all match", func() error { return SetGroup(dir, gid, false) })
	run("none matches", func() error { gid++; return SetGroup(dir, gid, false) })
	run("none matches, one plain walker", func() error { gid++; return setGroupSlowly(dir, Grant{GID: gid}) })
}

// lookInParallel stats each object of a tree in parallel.
func lookInParallel(root string) error {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	hands := make(chan struct{}, runtime.GOMAXPROCS(0))
	var look func(dir string)
	look = func(dir string) {
		list, err := os.ReadDir(dir)
		if err != nil {
			failed.Store(&err)
		}
		for _, e := range list {
			sub := filepath.Join(dir, e.Name())
			if _, err := os.Lstat(sub); err != nil {
				failed.Store(&err)
			}
			if !e.IsDir() {
				continue
			}
			select {
			case hands <- struct{}{}:
				wg.Go(func() { look(sub); <-hands })
			default:
				look(sub)
			}
		}
	}
	look(root)
	wg.Wait()
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}
