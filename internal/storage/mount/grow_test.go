package mount

import (
	"os"
	"path/filepath"
	"testing"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// The file system determines the resize program; blkid and the programs are stand-ins.
func TestGrowDisk(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-21")
	dir := t.TempDir()
	for name, script := range map[string]string{
		"blkid": `for disk; do :; done
case "$disk" in
/dev/empty) exit 2;;
/dev/parts) echo PTTYPE=gpt;;
/dev/bad) echo TYPE=ext4;;
*) echo "TYPE=${disk#/dev/}";;
esac`,
		"resize2fs": `case "$1" in /dev/bad) echo "no room" >&2; exit 1;; esac; echo resize2fs "$@" >> ` + dir +
			`/calls`,
		"xfs_growfs": `echo xfs_growfs "$@" >> ` + dir + `/calls`,
		"btrfs":      `echo btrfs "$@" >> ` + dir + `/calls`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ disk, logged, fails string }{
		{"/dev/ext3", "resize2fs /dev/ext3\n", ""},
		{"/dev/ext4", "resize2fs /dev/ext4\n", ""},
		{"/dev/xfs", "xfs_growfs -d /mnt/v\n", ""},
		{"/dev/btrfs", "btrfs filesystem resize max /mnt/v\n", ""},
		{"/dev/empty", "", ""},
		{"/dev/vfat", "", "ResizeFS.Resize - resize of format vfat is not supported for device /dev/vfat mounted at /mnt/v"},
		{"/dev/parts", "", "ResizeFS.Resize - resize of format unknown data, probably partitions is not supported " +
			"for device /dev/parts mounted at /mnt/v"},
		{"/dev/bad", "", "resize of device /dev/bad failed: exit status 1. resize2fs output: no room\n"},
	} {
		err := (Tools{Path: dir}).GrowDisk(t.Context(), c.disk, "/mnt/v")
		if (err == nil) != (c.fails == "") || err != nil && pod.TextOf(err) != c.fails {
			t.Errorf("%s: %v, want %q", c.disk, err, c.fails)
		}
		logged, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if string(logged) != c.logged {
			t.Errorf("%s: called %q, want %q", c.disk, logged, c.logged)
		}
		if err := os.RemoveAll(filepath.Join(dir, "calls")); err != nil {
			t.Fatal(err)
		}
	}
}
