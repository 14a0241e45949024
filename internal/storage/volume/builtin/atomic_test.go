package builtin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"keelson/test/kit/parity"
)

func plain(kv ...string) map[string]file {
	files := map[string]file{}
	for i := 0; i < len(kv); i += 2 {
		files[kv[i]] = file{data: []byte(kv[i+1]), mode: 0o644}
	}
	return files
}

// shown returns the visible files of the volume, and separately names starting with "..".
func shown(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			at := filepath.Join(rel, e.Name())
			if strings.HasPrefix(at, "..") {
				continue
			}
			st, err := os.Stat(filepath.Join(dir, at))
			if err != nil {
				out[at] = "dangling"
				continue
			}
			if st.IsDir() {
				walk(at)
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, at))
			if err != nil {
				t.Fatal(err)
			}
			out[at] = string(b)
		}
	}
	walk(".")
	return out
}

func wantShown(t *testing.T, dir string, kv ...string) {
	t.Helper()
	want := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		want[kv[i]] = kv[i+1]
	}
	if got := shown(t, dir); !maps.Equal(got, want) {
		t.Errorf("the volume shows %v, want %v", got, want)
	}
	if n := generations(t, dir); n != 1 {
		t.Errorf("%d generations, want 1", n)
	}
}

// generations returns the number of generations in a volume. It reports other names that are not
// visible.
func generations(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if generationName.MatchString(e.Name()) {
			n++
		} else if strings.HasPrefix(e.Name(), "..") && e.Name() != "..data" {
			t.Errorf("%s is left over", e.Name())
		}
	}
	return n
}

func mustWrite(t *testing.T, dir string, files map[string]file) {
	t.Helper()
	if err := writeFiles(dir, files, nil, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func TestWriteFiles(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, plain("a", "1", "sub/dir/b", "2"))
	wantShown(t, dir, "a", "1", "sub/dir/b", "2")
	for name, to := range map[string]string{"a": "..data/a", "sub": "..data/sub"} {
		if got, err := os.Readlink(filepath.Join(dir, name)); err != nil || got != to {
			t.Errorf("%s leads to %s, %v, want %s", name, got, err, to)
		}
	}
	if gen, err := os.Readlink(filepath.Join(dir, "..data")); err != nil || generationName.FindString(gen) != gen {
		t.Errorf("..data leads to %s, %v", gen, err)
	}

	t.Run("no write without a change", func(t *testing.T) {
		before := stamps(t, dir)
		mustWrite(t, dir, plain("a", "1", "./sub//dir/b", "2"))
		if after := stamps(t, dir); !maps.Equal(before, after) {
			t.Errorf("changed from %v to %v", before, after)
		}
		parity.Proves(t, "VOL-31")
	})
	t.Run("a change, an addition and a removal", func(t *testing.T) {
		mustWrite(t, dir, plain("a", "one", "c", "3"))
		wantShown(t, dir, "a", "one", "c", "3")
	})
	t.Run("everything removed", func(t *testing.T) {
		mustWrite(t, dir, nil)
		wantShown(t, dir)
	})
	t.Run("a directory becomes a file", func(t *testing.T) {
		mustWrite(t, dir, plain("x/y", "1"))
		mustWrite(t, dir, plain("x", "2"))
		wantShown(t, dir, "x", "2")
	})
	t.Run("files that cannot be written", func(t *testing.T) {
		before := stamps(t, dir)
		for range 3 { // a name is a file and a directory
			if err := writeFiles(dir, plain("x", "3", "x/y", "4"), nil, nil, time.Now()); err == nil {
				t.Error("they were written")
			}
		}
		wantShown(t, dir, "x", "2")
		after := stamps(t, dir)
		delete(before, dir)
		delete(after, dir)
		if len(after) != len(before) {
			t.Errorf("left: %v", after)
		}
	})
	t.Run("foreign files are kept", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "own"), []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, dir, plain("z", "1"))
		wantShown(t, dir, "z", "1", "own", "mine")
	})
	parity.ProvesPart(t, 3, "VOL-29")
}

// stamps returns the modification times of everything in a volume.
func stamps(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		out[p] = st.ModTime()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A crash may leave any prefix of the steps. From each, the next write reaches the wanted state.
func TestWriteFilesAfterCrash(t *testing.T) {
	in := func(dir string, parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	do := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, crash := range map[string]func(t *testing.T, dir string){
		"a generation was begun": func(t *testing.T, dir string) {
			do(t, os.MkdirAll(in(dir, "..2020_01_01_00_00_00.1", "sub"), 0o700))
		},
		"a generation was written": func(t *testing.T, dir string) {
			_, err := writeGeneration(dir, plain("a", "new", "b", "x"), nil, time.Now())
			do(t, err)
		},
		"the next link was made": func(t *testing.T, dir string) {
			gen, err := writeGeneration(dir, plain("a", "new", "b", "x"), nil, time.Now())
			do(t, err)
			do(t, os.Symlink(gen, in(dir, nextLink)))
		},
		"the swap was made": func(t *testing.T, dir string) {
			gen, err := writeGeneration(dir, plain("a", "new", "b", "x"), nil, time.Now())
			do(t, err)
			do(t, swapTo(dir, gen))
		},
		"the names were linked": func(t *testing.T, dir string) {
			files := plain("a", "new", "b", "x")
			gen, err := writeGeneration(dir, files, nil, time.Now())
			do(t, err)
			do(t, swapTo(dir, gen))
			do(t, linkNames(dir, topNames(files)))
		},
		"the generation was lost": func(t *testing.T, dir string) {
			gen, err := os.Readlink(in(dir, currentLink))
			do(t, err)
			do(t, os.RemoveAll(in(dir, gen)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustWrite(t, dir, plain("a", "old", "gone", "y"))
			crash(t, dir)
			mustWrite(t, dir, plain("a", "new", "b", "x"))
			wantShown(t, dir, "a", "new", "b", "x")
			mustWrite(t, dir, plain("a", "new", "b", "x"))
			wantShown(t, dir, "a", "new", "b", "x")
		})
	}
}

// Programs that reload their configuration watch for the replacement of ..data: ..data_tmp is
// created and renamed.
func TestWriteFilesRenamesDataLink(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-29")
	dir := t.TempDir()
	mustWrite(t, dir, plain("a", "1"))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVE|unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, dir, plain("a", "2", "b", "3"))
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[uint32]string{
		unix.IN_CREATE:     "create",
		unix.IN_MOVED_FROM: "from",
		unix.IN_MOVED_TO:   "to",
		unix.IN_DELETE:     "delete",
	}
	var got []string
	for b := buf[:n]; len(b) > 0; {
		mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		name := string(bytes.TrimRight(b[16:16+size], "\x00"))
		got = append(got, kinds[mask&^unix.IN_ISDIR]+" "+generationName.ReplaceAllString(name, "..<timestamp>"))
		b = b[16+size:]
	}
	want := []string{"create ..<timestamp>", "create ..data_tmp", "from ..data_tmp", "to ..data", "create b",
		"delete ..<timestamp>"}
	if !slices.Equal(got, want) {
		t.Errorf("changes of the directory: %q, want %q", got, want)
	}
}

// Readers see either all old files or all new ones.
func TestWriteFilesIsAtomic(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-29")
	dir := t.TempDir()
	mustWrite(t, dir, plain("a", "0", "b", "0"))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			link := filepath.Join(dir, currentLink)
			data, err := os.OpenRoot(link) // as readers that need a consistent set do
			if errors.Is(err, fs.ErrNotExist) {
				if _, err = os.Lstat(link); err == nil {
					continue // its target was an old generation and was removed; the symlink itself never is
				}
			}
			if err != nil {
				done <- err
				return
			}
			a, errA := data.ReadFile("a")
			b, errB := data.ReadFile("b")
			data.Close()
			if gone := errors.Join(errA, errB); gone != nil {
				if errors.Is(gone, fs.ErrNotExist) {
					continue // the generation is old and was removed
				}
				done <- gone
				return
			}
			if string(a) != string(b) {
				done <- fmt.Errorf("read %s and %s together", a, b)
				return
			}
		}
	}()
	for i := range 200 {
		v := fmt.Sprint(i)
		mustWrite(t, dir, plain("a", v, "b", v))
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCheckPath(t *testing.T) {
	for _, good := range []string{
		"a",
		"a/b",
		"a/..b",
		".hidden",
		strings.Repeat("x", 255),
		strings.Repeat("x/", 2047) + "xx",
		"./a",
	} {
		if err := checkPath(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	const dots, start = "must not contain '..': ", "must not start with '..': "
	for bad, want := range map[string]string{
		"":                                 `must not be empty: ""`,
		"/a":                               "must be relative path: /a",
		"..":                               dots + "..",
		"../a":                             dots + "../a",
		"a/../b":                           dots + "a/../b",
		"a/..":                             dots + "a/..",
		"..a":                              start + "..a",
		"..data":                           start + "..data",
		".":                                "names no file: .",
		"a/" + strings.Repeat("x", 256):    "filenames must be less than or equal to 255 characters",
		strings.Repeat("x/", 2047) + "xxx": "must be less than or equal to 4096 characters",
	} {
		if err := checkPath(bad); err == nil || err.Error() != "invalid path: "+want {
			t.Errorf("%.20q: %v, want %q", bad, err, want)
		}
	}
	dir := t.TempDir()
	for _, bad := range []string{"../escape", "/escape", "..data"} {
		if err := writeFiles(dir, plain("good", "1", bad, "2"), nil, nil, time.Now()); err == nil {
			t.Errorf("%s was written", bad)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("something was written: %v, %v", left, err)
	}
	parity.Proves(t, "VOL-30")
}

func TestTopNames(t *testing.T) {
	uid := 7
	tops := topNames(map[string]file{"tok": {uid: &uid}, "d/tok": {uid: &uid}, "e": {}})
	if got := slices.Sorted(maps.Keys(tops)); !slices.Equal(got, []string{"d", "e", "tok"}) {
		t.Errorf("names = %v", got)
	}
	if tops["tok"] == nil || *tops["tok"] != 7 || tops["e"] != nil {
		t.Errorf("owners = %v", tops)
	}
}
