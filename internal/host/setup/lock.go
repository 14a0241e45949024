package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// ErrContended ends an agent with --exit-on-lock-contention when another process opens the lock file. The process
// exits with status 0.
var ErrContended = errors.New("another process opened the lock file")

// HoldLock waits until no other agent holds the lock of a file, and keeps it for as long as the process lives. If
// contended is not nil, it gets one message when another process opens the file.
func HoldLock(ctx context.Context, path string, contended chan<- error, log *slog.Logger) error {
	// A plain descriptor, which stays open until the process ends.
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open lock file %s: %w", path, err)
	}
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(fd, unix.LOCK_EX) }()
	log.Info("waiting for the lock file", "file", path)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-locked:
		if err != nil {
			return fmt.Errorf("lock %s: %w", path, err)
		}
	}
	if contended == nil {
		return nil
	}
	in, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("watch lock file: %w", err)
	}
	if _, err := unix.InotifyAddWatch(in, path, unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		return errors.Join(fmt.Errorf("watch lock file %s: %w", path, err), unix.Close(in))
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := unix.Read(in, buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			switch {
			case n > 0:
				contended <- ErrContended
				return
			case err != nil:
				contended <- fmt.Errorf("watch lock file %s: %w", path, err)
				return
			}
		}
	}()
	return nil
}

// AwaitContention waits until another process opens the lock file, and returns that error.
func AwaitContention(ctx context.Context, contended <-chan error) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-contended:
		return err
	}
}
