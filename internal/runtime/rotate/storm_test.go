package rotate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
)

func TestNextCheck(t *testing.T) {
	for _, tc := range []struct {
		size, limit   int64
		elapsed, want time.Duration
	}{
		{10, 10, 10 * time.Second, 10 * time.Second},
		{11, 10, 11 * time.Second, 10 * time.Second},
		{40, 10, 10 * time.Second, 2500 * time.Millisecond},
		{10, 10, 2500 * time.Millisecond, 2500 * time.Millisecond},
		{1 << 40, 10, 10 * time.Second, time.Second},
		{1 << 60, 1 << 59, time.Hour, 30 * time.Minute},
	} {
		if got := nextCheck(tc.size, tc.limit, tc.elapsed); got != tc.want {
			t.Errorf("nextCheck(%d of %d after %v) = %v, want %v", tc.size, tc.limit, tc.elapsed, got, tc.want)
		}
	}
}

// many is a runtime with the logs of several containers.
type many struct {
	mu    sync.Mutex
	files map[string]*os.File // by container
	paths map[string]string
}

func (m *many) ReopenContainerLog(
	_ context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := os.OpenFile(m.paths[req.ContainerId], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	_ = m.files[req.ContainerId].Close()
	m.files[req.ContainerId] = f
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func (m *many) write(t *testing.T, container string, b []byte) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.files[container].Write(b); err != nil {
		t.Error(err)
	}
}

// TestLogStormDiskUsage: one container writes a hundred times its limit in every period, and
// another one its limit. One worker rotates the logs of both.
func TestLogStormDiskUsage(t *testing.T) {
	const (
		limit    = 100 << 10
		perTenth = 100 << 10 // written in a tenth of a second
		maxFiles = 4
		period   = 10 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		m := &many{files: map[string]*os.File{}, paths: map[string]string{}}
		var running []Log
		for _, c := range []string{"storm", "calm"} {
			path := filepath.Join(root, "ns_pod_uid", c, "0.log")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			m.paths[c] = path
			if _, err := m.ReopenContainerLog(t.Context(),
				&runtimeapi.ReopenContainerLogRequest{ContainerId: c}); err != nil {
				t.Fatal(err)
			}
			running = append(running, Log{Container: c, Path: path})
		}
		defer func() {
			for _, f := range m.files {
				_ = f.Close()
			}
		}()
		known := make(chan struct{})
		close(known)
		r := New(Config{
			Runtime:  m,
			Running:  func() []Log { return running },
			Known:    known,
			Root:     root,
			MaxSize:  limit,
			MaxFiles: maxFiles,
			Workers:  1,
			Period:   period,
			Log:      slog.New(slog.DiscardHandler),
			Now:      time.Now,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()

		noise := make([]byte, perTenth)
		var most int64
		for i := range 600 {
			m.write(t, "storm", noise)
			if i%100 == 50 {
				m.write(t, "calm", noise[:limit]) // due once a period
			}
			time.Sleep(100 * time.Millisecond)
			if n, err := room(filepath.Dir(m.paths["storm"])); err != nil {
				t.Fatal(err)
			} else if i > 150 { // the first check is after a period
				most = max(most, n)
			}
		}
		if bound := int64(maxFiles * (limit + 12*perTenth)); most > bound {
			t.Errorf("the storm's log took %d bytes at most, want %d: so many files of what is written in a second",
				most, bound)
		}
		calm, err := os.ReadDir(filepath.Dir(m.paths["calm"]))
		if err != nil || len(calm) != maxFiles {
			t.Errorf("the calm container has the logs %v, %v; want that they are rotated beside the storm", calm, err)
		}

		// After the storm, only the newest rotated file is not compressed, and the next check is
		// after a whole period.
		time.Sleep(2 * period)
		m.write(t, "storm", noise)
		time.Sleep(2 * period)
		entries, err := os.ReadDir(filepath.Dir(m.paths["storm"]))
		if err != nil {
			t.Fatal(err)
		}
		plain, packed := 0, 0
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".gz") {
				packed++
			} else {
				plain++
			}
		}
		if plain != 2 || packed != maxFiles-2 {
			t.Errorf("after the storm there are %v, want the live log, a plain one and compressed ones", entries)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// room returns the total size of the files in a directory.
func room(dir string) (sum int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil { // else it was removed since
			sum += fi.Size()
		}
	}
	return sum, nil
}

// TestFollowLogStorm: a container writes as fast as it can, its log is rotated and compressed
// without pause, and a reader follows all of it.
func TestFollowLogStorm(t *testing.T) {
	const lines = 150_000
	r := newRig(t)
	r.cfg.MaxFiles = 10_000 // what is removed cannot be read
	r.Adjust(256<<10, r.cfg.MaxFiles)
	var out bytes.Buffer
	stopped := make(chan struct{})
	following := make(chan struct{})
	var once sync.Once
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	go func() {
		done <- logs.ReadLogs(ctx, r.log.Path, logs.Options{Follow: true}, &out, &out,
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
	<-following
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range lines {
			r.runtime.write(t, fmt.Sprintf("2024-01-01T00:00:00.000000000Z stdout F line %d\n", i))
		}
	}()
	rotations := 0
	for writing := true; writing; {
		select {
		case <-written:
			writing = false
		default:
			before := r.runtime.times()
			r.round(t) // a minute of the names' time
			rotations += r.runtime.times() - before
		}
	}
	close(stopped)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if rotations < 5 {
		t.Errorf("the log was rotated %d times, too few to prove anything", rotations)
	}
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(got) != lines {
		t.Errorf("followed %d lines over %d rotations, want %d", len(got), rotations, lines)
	}
	if i := slices.IndexFunc(got, func(s string) bool { return s == "" }); i >= 0 {
		t.Errorf("line %d is empty", i)
	}
	for i, line := range got {
		if line != fmt.Sprint("line ", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	t.Logf("%d lines over %d rotations", len(got), rotations)
}

func (f *fakeRuntime) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reopened
}

func TestCompressionAbortsForLargeLog(t *testing.T) {
	r := newRig(t)
	old := filepath.Base(r.log.Path) + ".20260101-000000"
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.log.Path), old), []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	r.runtime.write(t, "1234567890")
	d, err := open(r.cfg.Root, r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.compress(t.Context(), old, 10); !errors.Is(err, errLogTooLarge) {
		t.Errorf("compress = %v, want that it gives way", err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "1234567890", old: "old"})
	if err := d.compress(t.Context(), old, 11); err != nil {
		t.Error(err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "1234567890", old + ".gz": "old"})
}
