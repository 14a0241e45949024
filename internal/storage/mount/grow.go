package mount

import (
	"context"
	"fmt"
)

// GrowDisk has the file system on a disk, mounted at a place, take all of the disk. A
// disk without one is left alone: it is given one of the full size.
func (t Tools) GrowDisk(ctx context.Context, disk, at string) error {
	kind, err := t.contentOf(ctx, disk)
	if err != nil {
		return fmt.Errorf("look at what is on %s: %w", disk, err)
	}
	switch kind {
	case "":
		return nil
	case "ext3", "ext4":
		_, err = t.runLong(ctx, "resize2fs", disk)
	case "xfs":
		_, err = t.runLong(ctx, "xfs_growfs", "-d", at)
	case "btrfs":
		_, err = t.runLong(ctx, "btrfs", "filesystem", "resize", "max", at)
	default:
		return fmt.Errorf("resize of format %s is not supported for device %s mounted at %s", kind, disk, at)
	}
	if err != nil {
		return fmt.Errorf("resize %s on %s: %w", kind, disk, err)
	}
	return nil
}
