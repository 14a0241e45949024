package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockTimeout bounds the wait for the lock of a disk. Creating a large file system takes longer;
	// the next attempt waits again.
	lockTimeout = 10 * time.Second
	lockPoll    = 50 * time.Millisecond
)

// ErrDiskLocked is the cause if another process holds the lock of a disk.
var ErrDiskLocked = errors.New("disk is locked by another process")

// lockDisk locks a disk against concurrent checks, formatting and repair until the file is closed.
// Processes that inherit the file hold the lock too, so that one which outlives its agent blocks
// the next agent. udev honours the same lock (systemd.io/BLOCK_DEVICE_LOCKING).
func lockDisk(ctx context.Context, disk string) (*os.File, error) {
	f, err := os.Open(disk)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, lockTimeout)
	defer stop()
	tick := time.NewTicker(lockPoll) // there is no notification when a lock is released
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", disk, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", disk, ErrDiskLocked), f.Close())
		}
	}
}
