package renames

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Watcher records how files get into directories.
type Watcher struct {
	fd   int
	dirs map[int32]string
}

// Watch makes the directories, if they are not there, and watches them until the test ends.
func Watch(t testing.TB, dirs ...string) *Watcher {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	w := &Watcher{fd, map[int32]string{}}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		wd, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVED_FROM|unix.IN_MOVED_TO)
		if err != nil {
			t.Fatal(err)
		}
		w.dirs[int32(wd)] = dir
	}
	return w
}

// change is what happened to one name.
type change struct {
	dir, name string
	mask      uint32
	cookie    uint32 // ties the two ends of a rename
}

func (w *Watcher) changes(t testing.TB) []change {
	t.Helper()
	var out []change
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EAGAIN {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for b := buf[:n]; len(b) > 0; {
			size := binary.NativeEndian.Uint32(b[12:])
			name := string(bytes.TrimRight(b[16:16+size], "\x00"))
			out = append(out, change{w.dirs[int32(binary.NativeEndian.Uint32(b))], name,
				binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])})
			b = b[16+size:]
		}
	}
}

// Check fails the test for each file that is there now and was written in place, or was
// not renamed from a file of its own directory. It returns the names of the files. Files
// that the agent has renamed to .bad because they are unusable are ignored.
func (w *Watcher) Check(t testing.TB) (names []string) {
	t.Helper()
	changes := w.changes(t)
	from := map[uint32]string{}
	for _, c := range changes {
		if c.mask&unix.IN_MOVED_FROM != 0 {
			from[c.cookie] = c.dir
		}
	}
	for _, dir := range w.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".bad") {
				continue
			}
			names = append(names, e.Name())
			renamed := false
			for _, c := range changes {
				if c.dir != dir || c.name != e.Name() {
					continue
				}
				if c.mask&(unix.IN_CREATE|unix.IN_MODIFY) != 0 {
					t.Errorf("%s was written in place", e.Name())
				}
				renamed = renamed || c.mask&unix.IN_MOVED_TO != 0 && from[c.cookie] == dir
			}
			if !renamed {
				t.Errorf("%s was not renamed from a file of its directory: %v", e.Name(), changes)
			}
		}
	}
	return names
}
