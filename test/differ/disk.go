package differ

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// The disk of a node is a file system of its own in memory, so that the interlude that fills it fills no other.
const (
	diskSize   = 256 << 20
	diskFiller = 190 << 20 // leaves less than pressedBelow of it
	// pressedBelow is a soft threshold: it has the node be under pressure at once, and pods evicted after a grace
	// period that no history outlasts, for which of many is evicted first is random.
	pressedBelow = "30%"
)

// makeDisk mounts the disk where the agent keeps its files. The rig unmounts it.
func (s *side) makeDisk() error {
	dir := filepath.Join(s.rig.Dir, "kubelet")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	if err := unix.Mount("differ", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=750", diskSize)); err != nil {
		return fmt.Errorf("make disk: mount %s: %w", dir, err)
	}
	return nil
}

func (s *side) filler() string { return filepath.Join(s.kubelet.Root, "filler") }

// fillDisk fills the disk of the node.
func (s *side) fillDisk() (err error) {
	f, err := os.Create(s.filler())
	if err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, diskFiller); err != nil {
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
	late := fmt.Errorf("pressure of node %s is not %v within 2 min", s.node, pressed)
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, late)
	defer cancel()
	_, err := s.rig.Cluster.UntilNode(ctx, s.node, func(n *corev1.Node) bool {
		is := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeDiskPressure && c.Status == corev1.ConditionTrue
		})
		return is == pressed
	})
	return err
}
