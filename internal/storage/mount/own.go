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
	// ownWait is how long a disk is waited for that somebody works on. To make a
	// large file system takes longer: the next attempt waits again.
	ownWait = 10 * time.Second
	ownLook = 50 * time.Millisecond
)

// ErrDiskTaken is the cause when a program still works on a disk.
var ErrDiskTaken = errors.New("a program is still at work on the disk, perhaps for an agent that has ended")

// own has nobody else look at, make or mend the file system of a disk until the
// file is closed. Programs that inherit the file own the disk too, so that one that
// outlives its agent keeps the next agent off. It is the lock that udev goes by, too
// (systemd.io/BLOCK_DEVICE_LOCKING).
func own(ctx context.Context, disk string) (*os.File, error) {
	f, err := os.Open(disk)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, ownWait)
	defer stop()
	tick := time.NewTicker(ownLook) // nothing tells of a lock that is given up
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
			return nil, errors.Join(fmt.Errorf("lock %s: %w", disk, ErrDiskTaken), f.Close())
		}
	}
}
