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

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

const (
	// maxCheckpoints is how many checkpoints of one container are kept. They are
	// somebody's evidence: none is removed to make room for another.
	maxCheckpoints = 10
	// minFreePercent is the free part of the disk below which no checkpoint is
	// begun. It is above what makes a node evict pods.
	minFreePercent = 20
)

// freezer is the part of the runtime that makes checkpoints.
type freezer interface {
	// CheckpointContainer writes the state of a running container to a file; the
	// container runs on.
	CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error)
}

// CheckpointConfig holds what a Checkpointer is built from. Every field is
// required.
type CheckpointConfig struct {
	Runtime freezer
	RootDir string
	// Disk tells the free and the whole size of the disk below a directory.
	Disk func(dir string) (free, size uint64, err error)
	Now  func() time.Time
}

// Checkpointer writes checkpoints of containers, one after another.
type Checkpointer struct {
	cfg  CheckpointConfig
	turn chan struct{} // capacity 1
}

// NewCheckpointer makes a Checkpointer.
func NewCheckpointer(cfg CheckpointConfig) *Checkpointer {
	return &Checkpointer{cfg: cfg, turn: make(chan struct{}, 1)}
}

// Checkpoint has the runtime write a checkpoint of a running container, for
// which it may take the given time, or its own if that is zero. It returns the
// file. One that could not be written whole is removed.
func (c *Checkpointer) Checkpoint(ctx context.Context, p *v1.Pod, container, id string, timeout time.Duration) (path string, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	dir := checkpointDir(c.cfg.RootDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the checkpoint directory: %w", err)
	}
	if err := c.room(dir, pod.FullName(p), container); err != nil {
		return "", err
	}
	path = filepath.Join(dir, checkpointName(pod.FullName(p), container, c.cfg.Now()))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("write checkpoint %s: there is one of this second already", path)
	}
	_, err = c.cfg.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: path, Timeout: int64(timeout / time.Second)})
	if err != nil {
		return "", errors.Join(err, removeFile(path))
	}
	return path, nil
}

// room returns why no more checkpoint of the container may be written.
func (c *Checkpointer) room(dir, podFullName, container string) error {
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
		return fmt.Errorf("write checkpoint: %d of %d bytes are free in %s, less than %d %%", free, size, dir, minFreePercent)
	}
	return nil
}

// checkpointName is the name of a checkpoint's file.
func checkpointName(podFullName, container string, at time.Time) string {
	return checkpointPrefix(podFullName, container) + at.Format(time.RFC3339) + checkpointSuffix
}

func isCheckpointOf(name, podFullName, container string) bool {
	// A longer container name may begin like this one: what follows has to be a time.
	rest, ok := strings.CutPrefix(name, checkpointPrefix(podFullName, container))
	stamp, tar := strings.CutSuffix(rest, checkpointSuffix)
	_, err := time.Parse(time.RFC3339, stamp)
	return ok && tar && err == nil
}
