package mount

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/internal/pods/pod"
)

// Events have upstream's texts for disks that cannot be mounted.
func TestMountDiskErrorTexts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tools   map[string]string
		options []string
		want    string // of DISK and TARGET
	}{
		{
			name:  "it cannot be read",
			tools: map[string]string{"blkid": "echo broken >&2; exit 4"},
			want:  "failed to get disk format of disk DISK: exit status 4",
		},
		{
			name:    "it has no file system and is to be read only",
			tools:   map[string]string{"blkid": "exit 2"},
			options: []string{"ro"},
			want:    "cannot mount unformatted disk DISK as we are manipulating it in read-only mode",
		},
		{
			name:    "it cannot be formatted",
			tools:   map[string]string{"blkid": "exit 2", "mkfs.ext4": "echo too small >&2; exit 1"},
			options: []string{"noatime"},
			want: `format of disk "DISK" failed: type:("ext4") target:("TARGET") options:(["noatime" "defaults"]) ` +
				"errcode:(exit status 1) output:(too small\n) ",
		},
		{
			name:  "its file system has errors",
			tools: map[string]string{"blkid": "echo TYPE=ext4", "fsck": "echo bad inode; exit 4"},
			want:  "'fsck' found errors on device DISK but could not correct them: bad inode\n",
		},
		{
			name: "the kernel does not mount it",
			tools: map[string]string{
				"blkid": "echo TYPE=ext4",
				"fsck":  "exit 0",
				"mount": "echo mount: no >&2; exit 32",
			},
			options: []string{"noatime"},
			want: "mount failed: exit status 32\nMounting command: mount\n" +
				"Mounting arguments: -t ext4 -o noatime,defaults DISK TARGET\nOutput: mount: no\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			disk, target := filepath.Join(dir, "disk"), filepath.Join(dir, "target")
			for path, text := range tc.tools {
				if err := os.WriteFile(filepath.Join(dir, path), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(disk, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(target, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Tools{Path: dir + ":/usr/bin:/bin"}.MountDisk(t.Context(), disk, target, "", tc.options)
			want := strings.NewReplacer("DISK", disk, "TARGET", target).Replace(tc.want)
			if err == nil || pod.TextOf(err) != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
}
