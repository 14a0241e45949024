package differ

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// The disk of a node is a file system of its own on a loop device over memory, so that the interlude that fills it
// fills no other file system. A tmpfs cannot be used: upstream's agent counts each bind mount of a tmpfs that it finds
// when it starts as a file system of its own, and takes a random one of them for that of its root directory. If that is
// the mount of a subPath, most of its reads of the disk's usage fail once the subPath is unmounted, and it may not
// detect the pressure for minutes.
const (
	diskSize = 512 << 20
	diskLeft = 20 // percent that are left when it is filled, less than pressedBelow
	// pressedBelow is a soft threshold: the node is under pressure at once, and no pod is evicted, because the grace
	// period is longer than any history. Which of many pods would be evicted first is random.
	pressedBelow = "30%"
)

// makeDisk mounts the disk at the root directory of the agent. The rig unmounts it, which also removes the disk.
func (s *side) makeDisk(ctx context.Context) (err error) {
	dir := filepath.Join(s.rig.Dir, "kubelet")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	device, err := memoryDevice()
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	mkfs := exec.CommandContext(ctx, "/usr/sbin/mkfs.ext4", "-q", "-m", "0", "-i", "4096", "-O", "^has_journal",
		device.Name()) // which PATH may not name
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("make disk: mkfs.ext4 %s: %w: %s", device.Name(), err, out)
	}
	if err := unix.Mount(device.Name(), dir, "ext4", 0, "discard,noinit_itable"); err != nil {
		return fmt.Errorf("make disk: mount %s: %w", dir, err)
	}
	if err := os.Remove(filepath.Join(dir, "lost+found")); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	return nil
}

// memoryDevice is a loop device over anonymous memory. It is detached when it is neither open nor mounted any more.
func memoryDevice() (*os.File, error) {
	fd, err := unix.MemfdCreate("differ-disk", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, diskSize); err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	defer control.Close()
	for range 64 { // other processes attach loop devices, too
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("attach loop device: %w", err)
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()),
			&unix.LoopConfig{Fd: uint32(fd), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s: %w", device.Name(), err)
		}
	}
	return nil, fmt.Errorf("attach loop device: %w", unix.EBUSY)
}

func (s *side) filler() string { return filepath.Join(s.kubelet.Root, "filler") }

// fillDisk fills the disk of the node.
func (s *side) fillDisk() (err error) {
	f, err := os.Create(s.filler())
	if err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &disk); err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	filled := int64(disk.Bavail) - int64(disk.Blocks)*diskLeft/100
	if err := unix.Fallocate(int(f.Fd()), 0, 0, filled*disk.Bsize); err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	return nil
}

// emptyDisk removes what fillDisk has made, and waits until the node is not under pressure.
func (s *side) emptyDisk(ctx context.Context) error {
	if err := os.Remove(s.filler()); err != nil {
		return fmt.Errorf("empty disk: %w", err)
	}
	return s.untilPressed(ctx, false)
}

// untilPressed waits until both nodes are under pressure.
func (p *play) untilPressed(ctx context.Context) error {
	for _, s := range p.sides {
		if err := s.untilPressed(ctx, true); err != nil {
			return err
		}
	}
	return nil
}

// untilPressed waits until the node is under pressure, or is no more.
func (s *side) untilPressed(ctx context.Context, pressed bool) error {
	late := fmt.Errorf("pressure of node %s is not %v within 5 min", s.node, pressed)
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, late)
	defer cancel()
	_, err := s.rig.Cluster.UntilNode(ctx, s.node, func(n *corev1.Node) bool {
		is := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeDiskPressure && c.Status == corev1.ConditionTrue
		})
		return is == pressed
	})
	return err
}
