package app

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/runtime/container"
)

// checkpoints writes the state of containers to files.
type checkpoints struct {
	streams
	*container.Checkpointer
}

func (a *agent) checkpoints() checkpoints {
	return checkpoints{streams{a}, container.NewCheckpointer(container.CheckpointConfig{Runtime: a.runtime, RootDir: a.cfg.Flags.RootDir, Disk: disk, Now: time.Now})}
}

// Checkpoint writes the state of the container's running instance.
func (c checkpoints) Checkpoint(ctx context.Context, p *v1.Pod, name string, timeout time.Duration) (string, error) {
	id, err := c.running(p, name)
	if err != nil {
		return "", err
	}
	return c.Checkpointer.Checkpoint(ctx, p, name, id, timeout)
}

// disk is the space that is free, and that there is, on the disk of a directory.
func disk(dir string) (free, size uint64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("read the size of the disk of %s: %w", dir, err)
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Blocks * uint64(fs.Bsize), nil
}
