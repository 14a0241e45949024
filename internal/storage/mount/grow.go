package mount

import (
	"context"
	"fmt"

	"keelson/internal/pods/pod"
)

// GrowDisk grows the file system on a disk, mounted at a path, to the size of the disk. A disk
// without a file system is not changed: it will be formatted in full.
func (t Tools) GrowDisk(ctx context.Context, disk, at string) error {
	kind, err := t.contentOf(ctx, disk)
	if err != nil {
		_, ended := Outcome(err)
		return pod.ShowAs(fmt.Sprintf("ResizeFS.Resize - error checking format for device %s: %v", disk, ended),
			fmt.Errorf("probe %s: %w", disk, err))
	}
	var tool string
	var args []string
	switch kind {
	case "":
		return nil
	case "ext3", "ext4":
		tool, args = "resize2fs", []string{disk}
	case "xfs":
		tool, args = "xfs_growfs", []string{"-d", at}
	case "btrfs":
		tool, args = "btrfs", []string{"filesystem", "resize", "max", at}
	default:
		return fmt.Errorf("ResizeFS.Resize - resize of format %s is not supported for device %s mounted at %s",
			kind, disk, at)
	}
	if _, err := t.runLong(ctx, tool, args...); err != nil {
		output, ended := Outcome(err)
		text := fmt.Sprintf("resize of device %s failed: %v. %s output: %s", args[len(args)-1], ended, tool, output)
		return pod.ShowAs(text, fmt.Errorf("resize %s on %s: %w", kind, disk, err))
	}
	return nil
}
