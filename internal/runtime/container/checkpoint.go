package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

const (
	// maxCheckpoints bounds the number of checkpoints of one container. A checkpoint may be
	// evidence of an incident, so an old one is never deleted to make room for a new one.
	maxCheckpoints = 10
	// minFreePercent is the free share of the disk below which no checkpoint is started. It is
	// above the default eviction thresholds.
	minFreePercent = 20
)

// checkpointRuntime is the part of the container runtime that writes checkpoints.
type checkpointRuntime interface {
	// CheckpointContainer writes the state of a running container to a file. The container
	// continues to run.
	CheckpointContainer(
		context.Context, *runtimeapi.CheckpointContainerRequest,
	) (*runtimeapi.CheckpointContainerResponse, error)
}

// CheckpointConfig holds what a Checkpointer is built from. Every field is required.
type CheckpointConfig struct {
	Runtime checkpointRuntime
	RootDir string
	// Disk returns the free bytes and the size of the file system that holds dir.
	Disk func(dir string) (free, size uint64, err error)
	Now  func() time.Time
}

// Checkpointer writes checkpoints of containers, one at a time.
type Checkpointer struct {
	cfg  CheckpointConfig
	slot chan struct{} // capacity 1
}

// NewCheckpointer makes a Checkpointer.
func NewCheckpointer(cfg CheckpointConfig) *Checkpointer {
	return &Checkpointer{cfg: cfg, slot: make(chan struct{}, 1)}
}

// Checkpoint has the runtime write a checkpoint of a running container and returns its path. A
// timeout of zero leaves the runtime its own default. An incomplete file is removed.
func (c *Checkpointer) Checkpoint(
	ctx context.Context, p *v1.Pod, container, id string, timeout time.Duration,
) (path string, err error) {
	select {
	case c.slot <- struct{}{}:
		defer func() { <-c.slot }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	dir := checkpointDir(c.cfg.RootDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the checkpoint directory: %w", err)
	}
	if err := c.checkRoom(dir, pod.FullName(p), container); err != nil {
		return "", err
	}
	path = filepath.Join(dir, checkpointName(pod.FullName(p), container, c.cfg.Now()))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("write checkpoint %s: there is one of this second already", path)
	}
	_, err = c.cfg.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: id,
		Location:    path,
		Timeout:     int64(timeout / time.Second),
	})
	if err != nil {
		return "", errors.Join(err, removeFile(path))
	}
	return path, nil
}

// checkRoom returns an error if no further checkpoint of the container may be written.
func (c *Checkpointer) checkRoom(dir, podFullName, container string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	n := 0
	for _, e := range entries {
		if isCheckpointOf(e.Name(), podFullName, container) {
			n++
		}
	}
	if n >= maxCheckpoints {
		return fmt.Errorf("write checkpoint: %s holds %d of this container already; move or remove some first", dir, n)
	}
	free, size, err := c.cfg.Disk(dir)
	if err != nil {
		return fmt.Errorf("find room for a checkpoint: %w", err)
	}
	if free/minFreePercent < size/100 {
		return fmt.Errorf("write checkpoint: %d of %d bytes are free in %s, less than %d %%", free, size, dir,
			minFreePercent)
	}
	return nil
}

// checkpointName returns the file name of a checkpoint.
func checkpointName(podFullName, container string, at time.Time) string {
	return checkpointPrefix(podFullName, container) + at.Format(time.RFC3339) + checkpointSuffix
}

func isCheckpointOf(name, podFullName, container string) bool {
	// The name of another container may have this one as its prefix, so the rest must be a time.
	rest, ok := strings.CutPrefix(name, checkpointPrefix(podFullName, container))
	stamp, tar := strings.CutSuffix(rest, checkpointSuffix)
	_, err := time.Parse(time.RFC3339, stamp)
	return ok && tar && err == nil
}

// DiskSpace returns the free bytes and the size of the file system that contains dir.
func DiskSpace(dir string) (free, size uint64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("read the size of the disk of %s: %w", dir, err)
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Blocks * uint64(fs.Bsize), nil
}
