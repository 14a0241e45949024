package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

// fakeFreezer writes a checkpoint file, also if it fails.
type fakeFreezer struct {
	fail    error
	timeout int64
}

func (f *fakeFreezer) CheckpointContainer(
	_ context.Context, req *runtimeapi.CheckpointContainerRequest,
) (*runtimeapi.CheckpointContainerResponse, error) {
	f.timeout = req.Timeout
	if err := os.WriteFile(req.Location, []byte("state of "+req.ContainerId), 0o600); err != nil {
		return nil, err
	}
	return &runtimeapi.CheckpointContainerResponse{}, f.fail
}

type checkpointRig struct {
	*Checkpointer
	runtime    *fakeFreezer
	root       string
	free, size uint64
	now        time.Time
}

func newCheckpointRig(t *testing.T) *checkpointRig {
	t.Helper()
	r := &checkpointRig{
		runtime: &fakeFreezer{},
		root:    t.TempDir(),
		free:    50 << 30,
		size:    100 << 30,
		now:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	r.Checkpointer = NewCheckpointer(CheckpointConfig{
		Runtime: r.runtime,
		RootDir: r.root,
		Disk:    func(string) (uint64, uint64, error) { return r.free, r.size, nil },
		Now:     func() time.Time { return r.now },
	})
	return r
}

func (r *checkpointRig) files(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.root, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

var frozen = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1"}}

func TestCheckpointPath(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-52")
	r := newCheckpointRig(t)
	got, err := r.Checkpoint(t.Context(), frozen, "main", "id-1", 90*time.Second)
	if want := filepath.Join(r.root, "checkpoints", "checkpoint-web_shop-main-2026-01-02T03:04:05Z.tar"); err != nil ||
		got != want {
		t.Fatalf("Checkpoint = %s, %v; want %s", got, err, want)
	}
	if b, err := os.ReadFile(got); err != nil || string(b) != "state of id-1" || r.runtime.timeout != 90 {
		t.Errorf("the file holds %q, %v with a timeout of %d s", b, err, r.runtime.timeout)
	}
	if fi, err := os.Stat(filepath.Dir(got)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the directory's mode is %v, %v; want 0700", fi.Mode(), err)
	}
}

func TestFailedCheckpointIsRemoved(t *testing.T) {
	r := newCheckpointRig(t)
	r.runtime.fail = errors.New("no criu")
	if _, err := r.Checkpoint(t.Context(), frozen, "main", "id-1", 0); !errors.Is(err, r.runtime.fail) {
		t.Errorf("Checkpoint = %v, want the runtime's error", err)
	}
	if n := r.files(t); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

func TestCheckpointLimits(t *testing.T) {
	r := newCheckpointRig(t)
	take := func(container string) error {
		r.now = r.now.Add(time.Second)
		_, err := r.Checkpoint(t.Context(), frozen, container, "id-"+container, 0)
		return err
	}
	for i := range maxCheckpoints {
		if err := take("main"); err != nil {
			t.Fatalf("checkpoint %d: %v", i, err)
		}
	}
	if err := take("main"); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("holds %d of this container", maxCheckpoints)) {
		t.Errorf("one checkpoint too many = %v, want an error", err)
	}
	if err := take("main-2"); err != nil {
		t.Errorf("checkpoint of a container of a longer name = %v", err)
	}
	if n := r.files(t); n != maxCheckpoints+1 {
		t.Errorf("%d files, want that none was removed", n)
	}
	r.free = 19 << 30
	if err := take("other"); err == nil || !strings.Contains(err.Error(), "less than 20 %") {
		t.Errorf("checkpoint on a full disk = %v, want an error", err)
	}
	r.free = 21 << 30
	if err := take("other"); err != nil {
		t.Errorf("checkpoint with room = %v", err)
	}
	if _, err := r.Checkpoint(t.Context(), frozen, "other", "id", 0); err == nil {
		t.Error("a second checkpoint of the same second replaced the first")
	}
}

func TestCheckpointsRunOneAtATime(t *testing.T) {
	r := newCheckpointRig(t)
	r.slot <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Checkpoint(ctx, frozen, "main", "id-1", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Checkpoint = %v, want the end of its context", err)
	}
}
