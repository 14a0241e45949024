package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// BindDevice bind mounts a device node at a file, which it creates. If another device is mounted
// there, it is replaced.
func BindDevice(device, target string) error {
	var want, have unix.Stat_t
	if err := unix.Stat(device, &want); err != nil {
		return &os.PathError{Op: "stat", Path: device, Err: err}
	}
	if want.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("bind %s: not a block device", device)
	}
	on, err := IsPoint(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case on:
		if err := unix.Stat(target, &have); err == nil && have.Rdev == want.Rdev &&
			have.Mode&unix.S_IFMT == unix.S_IFBLK {
			return nil
		}
		if err := Unmount(target); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	source, err := os.OpenFile(device, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	return Bind(source, target)
}

// AttachLoop attaches a file or device to a loop device and returns the loop device. An existing
// one is reused.
func AttachLoop(path string) (string, error) {
	if dev, err := LoopOf(path); dev != "" || err != nil {
		return dev, err
	}
	backing, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		backing, err = os.OpenFile(path, os.O_RDONLY, 0)
	}
	if err != nil {
		return "", err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for range 64 { // other processes attach loop devices, too
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a free loop device: %w", err)
		}
		dev := fmt.Sprintf("/dev/loop%d", n)
		err = setLoop(dev, backing)
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		return dev, err
	}
	return "", fmt.Errorf("attach %s to a loop device: %w", path, unix.EBUSY)
}

func setLoop(dev string, backing *os.File) error {
	loop, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		return fmt.Errorf("attach %s to %s: %w", backing.Name(), dev, err)
	}
	return nil
}

// LoopOf returns the loop device that path is attached to, if any.
func LoopOf(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // detached in the meantime
		}
		if strings.TrimSpace(string(b)) == real {
			return "/dev/" + strings.Split(f, "/")[3], nil
		}
	}
	return "", nil
}

// DetachLoop detaches path from its loop device, if any.
func DetachLoop(path string) error {
	dev, err := LoopOf(path)
	if dev == "" || err != nil {
		return err
	}
	loop, err := os.OpenFile(dev, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s from %s: %w", path, dev, err)
	}
	return nil
}
