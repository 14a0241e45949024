package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// room is a temporary directory whose mounts are removed at the end.
func room(t *testing.T) string {
	t.Helper()
	need.Root(t, "mounting")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		points, err := At(dir)
		if err != nil {
			t.Error(err)
		}
		for _, p := range points {
			if err := Unmount(p); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func optionsOf(t *testing.T, point string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[1] == point {
			return f[2] + " " + f[3]
		}
	}
	return ""
}

func TestTmpfsAndTable(t *testing.T) {
	dir := room(t)
	m := mkdir(t, dir, "m")
	if on, err := IsPoint(m); err != nil || on {
		t.Errorf("IsPoint = %v, %v before the mount", on, err)
	}
	must(t, Tmpfs(m, 8<<20))
	want := "tmpfs rw,relatime,size=8192k"
	if NoSwap() {
		want += ",noswap"
	}
	if got := optionsOf(t, m); got != want {
		t.Errorf("mounted as %q, want %q", got, want)
	}
	inner := mkdir(t, m, "inner")
	must(t, Tmpfs(inner, 0))
	must(t, Tmpfs(inner, 0)) // again, on top
	mkdir(t, dir, "m2")
	must(t, Tmpfs(filepath.Join(dir, "m2"), 0))
	points, err := At(m)
	if err != nil || !slices.Equal(points, []string{inner, inner, m}) {
		t.Errorf("At = %v, %v, want the inner one twice, then the outer one", points, err)
	}
	if on, err := IsPoint(m); err != nil || !on {
		t.Errorf("IsPoint = %v, %v of a mount", on, err)
	}
	if err := Unmount(m); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Unmount with a mount below = %v, want busy", err)
	}
	must(t, Unmount(inner))
	if on, err := IsPoint(inner); err != nil || on {
		t.Errorf("IsPoint = %v, %v after the unmount of both", on, err)
	}
	must(t, Unmount(m))
	must(t, Unmount(m))
	must(t, Unmount(filepath.Join(dir, "never")))
	if _, err := IsPoint(filepath.Join(dir, "never")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("IsPoint of nothing = %v", err)
	}
}

func TestOpenBeneath(t *testing.T) {
	dir := room(t)
	vol := mkdir(t, dir, "vol")
	write(t, filepath.Join(dir, "secret"), "host")
	mkdir(t, vol, "a", "b")
	write(t, filepath.Join(vol, "a", "f"), "mine")
	for link, to := range map[string]string{
		"in":       "a/f",
		"up-in":    "a/../a/f",
		"abs-in":   filepath.Join(vol, "a", "f"),
		"out":      "../secret",
		"abs-out":  filepath.Join(dir, "secret"),
		"dir-out":  "..",
		"magic":    "/proc/self/root",
		"dangling": "nowhere",
		"abs-none": filepath.Join(dir, "none"),
		"up-none":  "../none",
		"loop":     "loop",
	} {
		must(t, os.Symlink(to, filepath.Join(vol, link)))
	}
	for sub, want := range map[string]string{
		"a/f": "mine", "in": "mine", "up-in": "mine", "abs-in": "mine", "a/./f": "mine",
		"out": "", "abs-out": "", "dir-out/secret": "", "../secret": "", "/etc/passwd": "",
		"a/../../secret": "", "magic/etc/passwd": "", "dangling": "", "loop": "", "a/f/x": "",
	} {
		f, err := OpenBeneath(vol, sub)
		if err != nil {
			if want != "" {
				t.Errorf("OpenBeneath(%s): %v", sub, err)
			}
			continue
		}
		got, rerr := os.ReadFile(procPath(f))
		f.Close()
		if want == "" || rerr != nil || string(got) != want {
			t.Errorf("OpenBeneath(%s) reads %q, %v, want %q", sub, got, rerr, want)
		}
	}
	for sub, want := range map[string]error{
		"out":          ErrEscapes,
		"abs-out":      ErrEscapes,
		"../x":         ErrEscapes,
		"abs-none":     ErrEscapes,
		"abs-none/x":   ErrEscapes,
		"up-none":      ErrEscapes,
		"dir-out/none": ErrEscapes,
		"abs-out/x":    ErrEscapes,
		"nothing":      os.ErrNotExist,
		"dangling":     os.ErrNotExist,
	} {
		if _, err := OpenBeneath(vol, sub); !errors.Is(err, want) {
			t.Errorf("OpenBeneath(%s) = %v, want %v", sub, err, want)
		}
	}
	// The fallback for older kernels must be as safe.
	root, err := unix.Open(vol, unix.O_PATH, 0)
	must(t, err)
	defer unix.Close(root)
	if fd, err := openStepwise(root, "a/f"); err != nil {
		t.Errorf("stepwise a/f: %v", err)
	} else {
		unix.Close(fd)
	}
	for _, sub := range []string{"out", "dir-out/secret", "in"} {
		if fd, err := openStepwise(root, sub); err == nil {
			unix.Close(fd)
			t.Errorf("stepwise %s follows a symlink", sub)
		}
	}
}

// A container alternates between a directory and a symlink to the host, while the agent opens a
// path through it.
func TestOpenBeneathSymlinkRace(t *testing.T) {
	dir := room(t)
	vol, host := mkdir(t, dir, "vol"), mkdir(t, dir, "host")
	write(t, filepath.Join(mkdir(t, vol, "d"), "f"), "mine")
	write(t, filepath.Join(host, "f"), "host")
	must(t, os.Symlink(host, filepath.Join(vol, "evil")))
	must(t, os.Symlink(filepath.Join(vol, "d"), filepath.Join(vol, "abs")))

	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(vol, "d"), unix.AT_FDCWD, filepath.Join(vol, "evil"),
				unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
		}
	}()
	opened := 0
	for range 20000 {
		d, err := OpenBeneath(vol, "d")
		if err == nil {
			var st unix.Stat_t
			must(t, unix.Fstat(int(d.Fd()), &st))
			d.Close()
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				t.Fatalf("opened the symlink itself: %o", st.Mode)
			}
		}
	}
	for range 5000 {
		f, err := OpenBeneath(vol, "d/f")
		if err != nil {
			continue
		}
		got, err := os.ReadFile(procPath(f))
		f.Close()
		must(t, err)
		if string(got) != "mine" {
			t.Fatalf("opened the host's file: %q", got)
		}
		opened++
	}
	// An absolute symlink that leads back is resolved first and opened then.
	led := 0
	for range 20000 {
		f, err := OpenBeneath(vol, "abs/f")
		if err != nil {
			continue
		}
		got, err := os.ReadFile(procPath(f))
		f.Close()
		must(t, err)
		if string(got) != "mine" {
			t.Fatalf("opened the host's file through an absolute link: %q", got)
		}
		led++
	}
	for range 300 {
		// Whatever the result, nothing may be created on the host.
		_ = MkdirBeneath(vol, "d/new/er", 0o777)
		must(t, os.RemoveAll(filepath.Join(vol, "d", "new")))
		if names, err := os.ReadDir(host); err != nil || len(names) != 1 {
			t.Fatalf("the host's directory holds %v, %v", names, err)
		}
	}
	close(stop)
	must(t, <-done)
	if opened == 0 || led == 0 {
		t.Error("never opened the good file, so nothing was shown")
	}
}

func TestBindOpenFile(t *testing.T) {
	dir := room(t)
	vol := mkdir(t, dir, "vol")
	write(t, filepath.Join(mkdir(t, vol, "d"), "f"), "mine")
	write(t, filepath.Join(mkdir(t, dir, "host"), "f"), "host")
	f, err := OpenBeneath(vol, "d")
	must(t, err)
	defer f.Close()
	must(t, os.Rename(filepath.Join(vol, "d"), filepath.Join(vol, "moved")))
	must(t, os.Symlink(filepath.Join(dir, "host"), filepath.Join(vol, "d")))
	target := mkdir(t, dir, "target")
	must(t, Bind(f, target))
	if got, err := os.ReadFile(filepath.Join(target, "f")); err != nil || string(got) != "mine" {
		t.Errorf("the mount shows %q, %v, want mine", got, err)
	}
}

func TestMkdirBeneath(t *testing.T) {
	dir := room(t)
	defer syscall.Umask(syscall.Umask(0o077))
	vol := mkdir(t, dir, "vol")
	must(t, os.Chown(vol, 0, 3000))
	must(t, os.Chmod(vol, 0o777|os.ModeSetgid))
	must(t, os.Symlink("real", filepath.Join(vol, "link")))
	mkdir(t, vol, "real")
	for range 2 {
		must(t, MkdirBeneath(vol, "x/y", 0o777|os.ModeSetgid|os.ModeSticky))
		must(t, MkdirBeneath(vol, "link/z", 0o750))
		must(t, MkdirBeneath(vol, ".", 0o700))
	}
	for path, want := range map[string]string{
		"x":      "43777 0:3000",
		"x/y":    "43777 0:3000",
		"real/z": "40750 0:3000",
		".":      "42777 0:3000",
	} {
		if got := modeOf(t, filepath.Join(vol, path)); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	must(t, os.Symlink(dir, filepath.Join(vol, "out")))
	write(t, filepath.Join(vol, "file"), "")
	for _, sub := range []string{"out/a", "../a", "file/a"} {
		if err := MkdirBeneath(vol, sub, 0o777); err == nil {
			t.Errorf("MkdirBeneath(%s) succeeded", sub)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
		t.Error("a directory was made outside")
	}
}

func modeOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
}

func TestRemoveTreeStopsAtMounts(t *testing.T) {
	dir := room(t)
	data := mkdir(t, dir, "data")
	write(t, filepath.Join(data, "precious"), "data")
	for name, mountAt := range map[string]func(tree string){
		"another file system": func(tree string) { must(t, Tmpfs(mkdir(t, tree, "a/b"), 0)) },
		"the same file system": func(tree string) {
			f, err := OpenBeneath(dir, "data")
			must(t, err)
			defer f.Close()
			must(t, Bind(f, mkdir(t, tree, "a/b")))
		},
		"a file": func(tree string) {
			f, err := OpenBeneath(data, "precious")
			must(t, err)
			defer f.Close()
			write(t, filepath.Join(mkdir(t, tree, "a"), "b"), "")
			must(t, Bind(f, filepath.Join(tree, "a", "b")))
		},
		"the tree itself": func(tree string) {
			f, err := OpenBeneath(dir, "data")
			must(t, err)
			defer f.Close()
			must(t, Bind(f, tree))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := mkdir(t, dir, strings.ReplaceAll(name, " ", "-"))
			mountAt(tree)
			if err := RemoveTree(tree); !errors.Is(err, ErrMounted) {
				t.Errorf("RemoveTree = %v, want ErrMounted", err)
			}
			if got, err := os.ReadFile(filepath.Join(data, "precious")); err != nil || string(got) != "data" {
				t.Fatalf("the data behind the mount is %q, %v", got, err)
			}
			points, err := At(tree)
			must(t, err)
			for _, p := range points {
				must(t, Unmount(p))
			}
			must(t, RemoveTree(tree))
			if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

func TestRemoveTreeOfContainerFiles(t *testing.T) {
	dir := room(t)
	tree := mkdir(t, dir, "tree")
	write(t, filepath.Join(dir, "outside"), "kept")
	must(t, os.Symlink(dir, filepath.Join(tree, "link")))
	must(t, unix.Mkfifo(filepath.Join(tree, "fifo"), 0o600))
	for i := range 1100 {
		write(t, filepath.Join(tree, fmt.Sprint(i)), "")
	}
	// Far deeper than PATH_MAX and the limit of open files.
	at, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 600 {
		must(t, unix.Mkdirat(at, "deep", 0o700))
		next, err := unix.Openat(at, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	must(t, RemoveTree(tree))
	must(t, RemoveTree(tree))
	must(t, RemoveTree(filepath.Join(dir, "no", "such")))
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || names[0].Name() != "outside" {
		t.Errorf("left are %v, %v, want only what was outside", names, err)
	}
}

func TestSetGroup(t *testing.T) {
	parity.ProvesPart(t, 8, "VOL-17")
	dir := room(t)
	defer syscall.Umask(syscall.Umask(0o022))
	build := func(name string) string {
		tree := mkdir(t, dir, name)
		write(t, filepath.Join(mkdir(t, tree, "d"), "f"), "")
		must(t, os.Chmod(filepath.Join(tree, "d", "f"), 0o400))
		write(t, filepath.Join(tree, "set"), "")
		must(t, os.Chmod(filepath.Join(tree, "set"), 0o755|os.ModeSetuid))
		must(t, os.Symlink("/etc/passwd", filepath.Join(tree, "link")))
		return tree
	}
	before := modeOf(t, "/etc/passwd")
	for _, tc := range []struct {
		name     string
		readOnly bool
		want     map[string]string
	}{
		{
			"rw",
			false,
			map[string]string{
				".":    "42775 0:3000",
				"d":    "42775 0:3000",
				"d/f":  "100660 0:3000",
				"set":  "104775 0:3000",
				"link": "120777 0:3000",
			},
		},
		{
			"ro",
			true,
			map[string]string{
				".":    "42755 0:3000",
				"d":    "42755 0:3000",
				"d/f":  "100440 0:3000",
				"set":  "104755 0:3000",
				"link": "120777 0:3000",
			},
		},
	} {
		tree := build(tc.name)
		if has, err := HasGroup(tree, 3000, tc.readOnly); err != nil || has {
			t.Errorf("HasGroup = %v, %v before", has, err)
		}
		for range 2 {
			must(t, SetGroup(tree, 3000, tc.readOnly))
		}
		for path, want := range tc.want {
			if got := modeOf(t, filepath.Join(tree, path)); got != want {
				t.Errorf("%s: %s is %s, want %s", tc.name, path, got, want)
			}
		}
		if has, err := HasGroup(tree, 3000, tc.readOnly); err != nil || !has {
			t.Errorf("HasGroup = %v, %v after", has, err)
		}
	}
	if got := modeOf(t, "/etc/passwd"); got != before {
		t.Errorf("a symlink's target changed from %s to %s", before, got)
	}
}

// An interrupted removal, or the container, has already used the names to which deep directories
// are moved.
func TestRemoveTreeNameConflict(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	deep := strings.Repeat("/d", maxDepth+8)
	for i := range 8 {
		mkdir(t, tree, fmt.Sprintf(".removing~%d/full", 2*i+1))
		write(t, filepath.Join(tree, fmt.Sprintf(".removing~%d", 2*i+2)), "")
	}
	for i := range 64 { // some of them are read before those names
		mkdir(t, tree, fmt.Sprint(i)+deep)
	}
	must(t, RemoveTree(tree))
	if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
