package app

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/node/server/cert"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/record"
	"keelson/test/kit/parity"
)

// watcher sees how files get into directories.
type watcher struct {
	fd   int
	dirs map[int32]string
}

func watch(t *testing.T, dirs ...string) *watcher {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	w := &watcher{fd, map[int32]string{}}
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

func (w *watcher) changes(t *testing.T) []change {
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
			out = append(out, change{w.dirs[int32(binary.NativeEndian.Uint32(b))], name, binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])})
			b = b[16+size:]
		}
	}
}

// TestWhatMustOutliveACrashIsRenamedIntoPlace writes everything that a later
// agent reads, twice, and looks at how the files came to be.
func TestWhatMustOutliveACrashIsRenamedIntoPlace(t *testing.T) {
	parity.Proves(t, "RT-57")
	root := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	for name, tc := range map[string]struct {
		dirs  []string
		files int // that are there in the end
		write func(t *testing.T)
	}{
		"image records": {[]string{"image_manager/pulling", "image_manager/pulled"}, 1, func(t *testing.T) {
			s, err := record.New(record.Config{Root: root, Policy: record.Policy{Verify: v1beta1.AlwaysVerify}, Log: log, Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			for _, password := range []string{"one", "two"} {
				if err := s.Pulling("web:1"); err != nil {
					t.Fatal(err)
				}
				s.Pulled("web:1", "sha256:web", image.Credential{Auth: &runtimeapi.AuthConfig{Username: "u", Password: password},
					Secret: &v1beta1.ImagePullSecret{UID: password, Namespace: "ns", Name: password}})
			}
		}},
		"users of pods": {[]string{"pods/u1"}, 1, func(t *testing.T) {
			a, err := userns.New(userns.Config{PodsDir: filepath.Join(root, "pods"), IDs: userns.Range{First: 65536 * 10, Count: 65536 * 10}, PerPod: 65536, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Of("u1"); err != nil {
				t.Fatal(err)
			}
		}},
		"serving certificate": {[]string{"pki"}, 2, func(t *testing.T) {
			for _, now := range []time.Time{time.Now().Add(-20 * 365 * 24 * time.Hour), time.Now()} { // the second replaces the expired first
				if _, _, err := cert.SelfSigned(filepath.Join(root, "pki"), "node", now, func(error) {}, log); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.dirs {
				tc.dirs[i] = filepath.Join(root, tc.dirs[i])
			}
			w := watch(t, tc.dirs...)
			tc.write(t)
			changes := w.changes(t)
			from := map[uint32]string{}
			for _, c := range changes {
				if c.mask&unix.IN_MOVED_FROM != 0 {
					from[c.cookie] = c.dir
				}
			}
			there := 0
			for _, dir := range tc.dirs {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if strings.HasSuffix(e.Name(), ".bad") {
						continue // what was put aside
					}
					there++
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
			if there != tc.files {
				t.Errorf("%d files are there, want %d", there, tc.files)
			}
		})
	}
}
