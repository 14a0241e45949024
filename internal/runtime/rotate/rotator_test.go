package rotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/runtime/logs"
	"keelson/test/kit/parity"
)

// fakeRuntime writes logs as a runtime does: to a file that it keeps open until ReopenContainerLog.
type fakeRuntime struct {
	path string
	fail error

	mu       sync.Mutex
	file     *os.File
	reopened int
}

func (f *fakeRuntime) ReopenContainerLog(
	context.Context, *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reopened++
	if f.fail != nil {
		return nil, f.fail
	}
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file = file
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func (f *fakeRuntime) write(t *testing.T, text string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// rig is a container that logs, and its rotator.
type rig struct {
	*Rotator
	runtime *fakeRuntime
	log     Log
	now     time.Time
	logged  *bytes.Buffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := t.TempDir()
	r := &rig{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), logged: &bytes.Buffer{}}
	r.log = Log{Container: "c1", Path: filepath.Join(root, "ns_web_uid", "main", "0.log")}
	if err := os.MkdirAll(filepath.Dir(r.log.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	r.runtime = &fakeRuntime{path: r.log.Path}
	if _, err := r.runtime.ReopenContainerLog(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.runtime.file.Close() })
	r.runtime.reopened = 0
	known := make(chan struct{})
	close(known)
	r.Rotator = New(Config{
		Runtime:  r.runtime,
		Running:  func() []Log { return []Log{r.log} },
		Known:    known,
		Root:     root,
		MaxSize:  10,
		MaxFiles: 4,
		Workers:  1,
		Period:   10 * time.Second,
		Log:      slog.New(slog.NewTextHandler(r.logged, nil)),
		Now:      func() time.Time { return r.now },
	})
	return r
}

// round makes one check and waits for the workers. A minute passes.
func (r *rig) round(t *testing.T) {
	t.Helper()
	r.check(t.Context(), r.cfg.Period)
	r.group.Wait()
	r.now = r.now.Add(time.Minute)
}

// files returns the content of the log's files by name.
func (r *rig) files(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(r.log.Path))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(r.log.Path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(e.Name(), ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if b, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		got[e.Name()] = string(b)
	}
	return got
}

func wantFiles(t *testing.T, got, want map[string]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) { // maps print in order
		t.Errorf("files are %v, want %v", got, want)
	}
}

func TestRotateAtMaxSize(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-44")
	parity.ProvesPart(t, 3, "RT-45")
	r := newRig(t)
	r.runtime.write(t, "123456789")
	r.round(t)
	wantFiles(t, r.files(t), map[string]string{"0.log": "123456789"})
	r.runtime.write(t, "0")
	r.round(t)
	wantFiles(t, r.files(t), map[string]string{"0.log": "", "0.log.20260102-030505": "1234567890"})
	for i := range 4 {
		r.runtime.write(t, strings.Repeat(fmt.Sprint(i), 10))
		r.round(t)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "",
		"0.log.20260102-030705.gz": "1111111111", "0.log.20260102-030805.gz": "2222222222",
		"0.log.20260102-030905": "3333333333"})
	fi, err := os.Stat(r.log.Path + ".20260102-030705.gz")
	if err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("mode of the compressed log = %v, %v; want that of the log", fi.Mode(), err)
	}
}

// A machine may boot with a clock that is ahead. The newest files must still be kept longest.
func TestRotateAfterClockSetBack(t *testing.T) {
	r := newRig(t)
	r.now = time.Date(2035, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 8 {
		if i == 4 {
			r.now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		}
		r.runtime.write(t, strings.Repeat(fmt.Sprint(i), 10))
		r.round(t)
	}
	var kept []string
	for _, text := range r.files(t) {
		kept = append(kept, text)
	}
	slices.Sort(kept)
	if want := []string{"", "5555555555", "6666666666", "7777777777"}; !slices.Equal(kept, want) {
		t.Errorf("of eight rotated logs %q are left, want the last three and the live one: %v", kept, r.files(t))
	}
}

func TestRotateReopenFails(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-44")
	r := newRig(t)
	r.runtime.write(t, "1234567890")
	r.runtime.fail = errors.New("container is not running")
	r.round(t)
	r.round(t)
	wantFiles(t, r.files(t), map[string]string{"0.log": "1234567890"})
	if n := strings.Count(r.logged.String(), "container is not running"); n != 1 {
		t.Errorf("the failure was logged %d times, want once: %s", n, r.logged)
	}
	r.runtime.fail = nil
	r.round(t)
	wantFiles(t, r.files(t), map[string]string{"0.log": "", "0.log.20260102-030605": "1234567890"})
}

func TestRotateReopenSucceedsWithError(t *testing.T) {
	r := newRig(t)
	r.runtime.write(t, "1234567890")
	late := lateRuntime{r.runtime}
	r.cfg.Runtime = late
	r.round(t)
	r.runtime.write(t, "new")
	wantFiles(t, r.files(t), map[string]string{"0.log": "new", "0.log.20260102-030405": "1234567890"})
}

// lateRuntime reopens the log, but returns an error.
type lateRuntime struct{ *fakeRuntime }

func (l lateRuntime) ReopenContainerLog(
	ctx context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	if _, err := l.fakeRuntime.ReopenContainerLog(ctx, req); err != nil {
		return nil, err
	}
	return nil, context.DeadlineExceeded
}

func TestReopenMissingLog(t *testing.T) {
	parity.Proves(t, "RT-47")
	r := newRig(t)
	if err := os.Remove(r.log.Path); err != nil {
		t.Fatal(err)
	}
	r.round(t)
	wantFiles(t, r.files(t), map[string]string{"0.log": ""})
	r.round(t)
	if r.runtime.reopened != 1 {
		t.Errorf("reopened %d times, want once", r.runtime.reopened)
	}
}

func TestRotateDoesNotOverwrite(t *testing.T) {
	r := newRig(t)
	name := r.log.Path + ".20260102-030405"
	if err := os.WriteFile(name, []byte("of this second"), 0o640); err != nil {
		t.Fatal(err)
	}
	r.Adjust(r.cfg.MaxSize, 10)
	r.runtime.write(t, "1234567890")
	d, err := open(r.cfg.Root, r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := r.renameAndReopen(t.Context(), r.log, d, filepath.Base(name)); !errors.Is(err, os.ErrExist) {
		t.Errorf("renameAndReopen = %v, want that the name exists", err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "1234567890", "0.log.20260102-030405": "of this second"})
}

// TestCompressIsAtomic: the file is written under a temporary name first.
func TestCompressIsAtomic(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-45")
	r := newRig(t)
	const name = "0.log.20260102-030405"
	path := filepath.Join(filepath.Dir(r.log.Path), name)
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o640), os.WriteFile(path+".tmp", nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	d, err := open(r.cfg.Root, r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.compress(t.Context(), name, 1<<20); !errors.Is(err, os.ErrExist) {
		t.Errorf("with another's %s.tmp: %v", name, err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "", name: "old", name + ".tmp": ""})
	if err := errors.Join(os.Remove(path+".tmp"), d.compress(t.Context(), name, 1<<20)); err != nil {
		t.Error(err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "", name + ".gz": "old"})
}

func TestCleanUpInterruptedCompression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{".20260101-000000.tmp", ".20260101-010000", ".20260101-010000.gz", ".mine"} {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write([]byte("x"))
			_ = z.Close()
			if err := os.WriteFile(r.log.Path+name, b.Bytes(), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		var names []string
		for name := range r.files(t) {
			names = append(names, name)
		}
		slices.Sort(names)
		if want := []string{"0.log", "0.log.20260101-010000.gz", "0.log.mine"}; !slices.Equal(names, want) {
			t.Errorf("files are %v, want %v", names, want)
		}
		r.runtime.write(t, "1234567890")
		time.Sleep(10 * time.Second) // of virtual time
		synctest.Wait()
		if got := r.files(t); got["0.log.20260102-030405"] != "1234567890" {
			t.Errorf("files are %v, want that the log was rotated after a period", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// stuckRuntime hangs for one container.
type stuckRuntime struct {
	stuck string
	mu    sync.Mutex
	most  int
	now   int
}

func (s *stuckRuntime) ReopenContainerLog(
	ctx context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if req.ContainerId == s.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(time.Second)
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func TestRotateWorkers(t *testing.T) {
	parity.Proves(t, "RT-46")
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			root := t.TempDir()
			var running []Log
			for i := range 7 {
				path := filepath.Join(root, "pod", fmt.Sprint("c", i), "0.log")
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("1234567890"), 0o640); err != nil {
					t.Fatal(err)
				}
				running = append(running, Log{Container: fmt.Sprint("c", i), Path: path})
			}
			known := make(chan struct{})
			close(known)
			stuck := &stuckRuntime{stuck: "c0"}
			r := New(Config{
				Runtime:  stuck,
				Running:  func() []Log { return running },
				Known:    known,
				Root:     root,
				MaxSize:  10,
				MaxFiles: 2,
				Workers:  workers,
				Period:   10 * time.Second,
				Log:      slog.New(slog.DiscardHandler),
				Now:      time.Now,
			})
			r.check(t.Context(), r.cfg.Period)
			r.check(t.Context(), r.cfg.Period) // a log is not queued twice
			r.group.Wait()
			if stuck.most != workers {
				t.Errorf("%d were rotated at a time, want %d", stuck.most, workers)
			}
			for _, log := range running {
				_, err := os.Stat(log.Path)
				if rotated := errors.Is(err, os.ErrNotExist); rotated != (log.Container != "c0") {
					t.Errorf("%s: rotated %v; want all but the one whose runtime calls hang", log.Container, rotated)
				}
			}
		})
	}
}

func TestRotateStaysInLogDirectory(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "0.log.20260101-000000")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("a rotated log is a link to the host", func(t *testing.T) {
		r := newRig(t)
		if err := os.Symlink(secret, r.log.Path+".20260101-000000"); err != nil {
			t.Fatal(err)
		}
		r.runtime.write(t, "1234567890")
		r.round(t)
		if _, err := os.Stat(r.log.Path + ".20260101-000000.gz"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Stat of a compressed secret = %v, want none", err)
		}
		if fi, err := os.Stat(r.log.Path); err != nil || fi.Size() != 0 {
			t.Errorf("the log is %v, %v; want that it was rotated all the same", fi, err)
		}
	})
	t.Run("the container's directory is a link to the host", func(t *testing.T) {
		r := newRig(t)
		dir := filepath.Dir(r.log.Path)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.log.Path, []byte("1234567890"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.round(t)
		entries, err := os.ReadDir(outside)
		if err != nil || len(entries) != 2 || r.runtime.reopened != 0 {
			t.Errorf("files outside are %v, %v and %d were reopened; want them untouched", entries, err,
				r.runtime.reopened)
		}
	})
	t.Run("the log is a link to the host", func(t *testing.T) {
		r := newRig(t)
		if err := os.Remove(r.log.Path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, r.log.Path); err != nil {
			t.Fatal(err)
		}
		r.Adjust(1, r.cfg.MaxFiles)
		r.round(t)
		if r.runtime.reopened != 0 || !strings.Contains(r.logged.String(), "not a regular file") {
			t.Errorf("reopened %d times and logged %q, want only an error", r.runtime.reopened, r.logged)
		}
	})
}

// gate blocks a reader until it is opened.
type gate struct {
	open chan struct{}
	b    bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.b.Write(p)
}

func TestSlowFollowerLosesNoLine(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-49")
	r := newRig(t)
	r.Adjust(1, 10)
	var want []string
	line := func() {
		r.runtime.write(t, fmt.Sprintf("2024-01-01T00:00:00Z stdout F %d\n", len(want)))
		want = append(want, fmt.Sprint(len(want)))
	}
	line()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out := &gate{open: make(chan struct{})}
	done := make(chan error, 1)
	following := make(chan struct{})
	var once sync.Once
	stopped := make(chan struct{})
	go func() {
		done <- logs.ReadLogs(ctx, r.log.Path, logs.Options{Follow: true}, out, out,
			func(context.Context) (bool, error) {
				once.Do(func() { close(following) })
				select {
				case <-stopped:
					return false, nil
				default:
					return true, nil
				}
			})
	}()
	<-following // it has the first file open and is blocked by its consumer
	for i := range 6 {
		for range 10 {
			line()
		}
		at := time.Now().Add(time.Duration(i-60) * time.Minute) // as if the rotations were minutes apart
		if err := os.Chtimes(r.log.Path, at, at); err != nil {
			t.Fatal(err)
		}
		r.round(t)
	}
	line()
	if n := len(r.files(t)); n != 7 {
		t.Fatalf("there are %d files, want a live one, a plain one and five compressed ones", n)
	}
	close(stopped)
	close(out.open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.b.String()); !slices.Equal(got, want) {
		t.Errorf("followed %v, want %v", got, want)
	}
}
