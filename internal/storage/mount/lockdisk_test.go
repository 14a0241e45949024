package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"keelson/test/kit/await"
	"keelson/test/kit/need"
)

// A format continues after its caller has given up. Until it ends, the disk is not probed or
// formatted again.
func TestConcurrentFormat(t *testing.T) {
	need.Root(t, "mounting")
	dir := t.TempDir()
	image, target := filepath.Join(dir, "disk.img"), filepath.Join(dir, "target")
	for _, err := range []error{os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20), os.Mkdir(target, 0o755),
		os.Mkdir(filepath.Join(dir, "tools"), 0o755), unix.Mkfifo(filepath.Join(dir, "go"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	disk, err := AttachLoop(image)
	if err != nil {
		need.Skip(t, "this machine has no free loop device", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(Unmount(target), DetachLoop(image)); err != nil {
			t.Error(err)
		}
	})
	// A child process does the work and outlives it.
	const slow = `#!/bin/sh
( echo begin >> DIR/log; read x < DIR/go; /usr/sbin/mkfs.ext4 "$@"; echo end >> DIR/log ) > /dev/null 2>&1
`
	if err := os.WriteFile(filepath.Join(dir, "tools/mkfs.ext4"), []byte(strings.ReplaceAll(slow, "DIR", dir)),
		0o755); err != nil {
		t.Fatal(err)
	}
	logged := func() string {
		b, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(b)
	}
	tools := Tools{Path: filepath.Join(dir, "tools") + ":" + usualPath}
	first, give := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- tools.MountDisk(first, disk, target, "ext4", nil) }()
	await.True(t, "the first call", func() bool { return logged() != "" })
	give()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the first one ended with %v", err)
	}

	second, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if err := tools.MountDisk(second, disk, target, "ext4", nil); !errors.Is(err, ErrDiskLocked) ||
		!strings.Contains(err.Error(), "lock "+disk+": ") {
		t.Errorf("the second one ended with %v", err)
	}
	if got := logged(); got != "begin\n" {
		t.Errorf("what was made by then: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The third attempt waits until the format ends, and mounts its file system.
	third, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if err := tools.MountDisk(third, disk, target, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	if on, err := IsPoint(target); !on || err != nil {
		t.Errorf("it is not mounted: %v", err)
	}
	if got := logged(); got != "begin\nend\n" {
		t.Errorf("what was made in the end: %q", got)
	}
}

// The file system type of a disk is user input and becomes part of a program's name. It must not
// select a program of the pod.
func TestFileSystemTypeIsNotExecuted(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk.img")
	evil := filepath.Join(dir, "evil")
	for path, text := range map[string]string{disk: "", evil: "#!/bin/sh\ntouch " + dir + "/ran\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(disk, 1<<20); err != nil { // it is empty
		t.Fatal(err)
	}
	for _, kind := range []string{
		"x/../../../.." + evil,
		"../../.." + evil,
		"ext4/../../../.." + evil,
		"-x",
		"ext4 -x",
		"..",
	} {
		err := Tools{}.MountDisk(t.Context(), disk, dir, kind, nil)
		if err == nil || !strings.Contains(err.Error(), "is not the name of a file system") {
			t.Errorf("MountDisk as %q = %v", kind, err)
		}
		if _, err := (Tools{}).Find("mkfs." + kind); err == nil {
			t.Errorf("there is a program for %q", kind)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the pod's program ran")
	}
}

// Formatting a large disk or repairing one may take longer than the timeout of an attempt without
// progress. The running program counts as progress.
func TestFormatReportsProgress(t *testing.T) {
	for _, program := range []string{"mkfs.ext4", "fsck"} {
		t.Run(program, func(t *testing.T) {
			dir := t.TempDir()
			release := filepath.Join(dir, "go")
			for name, script := range map[string]string{
				"blkid":     "exit 2",
				"fsck":      "exit 0",
				"mkfs.ext4": "exit 0",
				"mount":     "exit 0",
			} {
				if program == "fsck" && name == "blkid" {
					script = "echo TYPE=ext4"
				}
				if name == program {
					script = "read x < " + release
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			disk := filepath.Join(dir, "disk")
			if err := errors.Join(os.WriteFile(disk, nil, 0o600), unix.Mkfifo(release, 0o600)); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			reported := 0
			tools := Tools{
				Path:  dir,
				Every: time.Millisecond,
				Alive: func(got context.Context) {
					if reported++; reported != 3 {
						return
					}
					if got != ctx {
						t.Error("a later event was recorded")
					}
					if err := os.WriteFile(release, []byte("x\n"), 0o600); err != nil {
						t.Error(err)
					}
				},
			}
			if err := tools.MountDisk(ctx, disk, dir, "ext4", nil); err != nil {
				t.Errorf("MountDisk = %v, progress reported %d times", err, reported)
			}
			if reported < 3 {
				t.Errorf("progress reported %d times", reported)
			}
		})
	}
}
