package persistent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/local"
	"keelson/internal/storage/volume/persistent/nfs"
	"keelson/test/kit/await"
	"keelson/test/kit/crash"
	"keelson/test/kit/need"
	"keelson/test/kit/volumenode"
)

func TestMain(m *testing.M) {
	crash.Main(m, map[string]func(string) error{"local and NFS volumes": victim})
}

// nodeAt is a node with local and NFS volumes: a directory, a disk with a file system, a block
// device, and an export. Two pods share a disk and a directory; each of the others belongs to one
// of them. Below dir are the root directory, the data of local volumes, the tools, and links to
// disks.
func nodeAt(dir string) volumenode.Config {
	path := func(name string) string { return filepath.Join(dir, name) }
	onNode := func(name string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path(name)}}
	}
	return volumenode.Config{
		Root: path("root"),
		Plugins: func(guard *mount.Guard, events pod.Events) []persistent.Plugin {
			tools := mount.Tools{Path: path("tools") + ":/usr/sbin:/usr/bin:/sbin:/bin"}
			return []persistent.Plugin{
				local.New(local.Config{RootDir: path("root"), Guard: guard, Events: events, Tools: tools}),
				nfs.New(nfs.Config{Guard: guard, Tools: tools}),
			}
		},
		Claims: map[string]volumenode.Claim{
			"dir":    {Source: onNode("dir")},
			"disk":   {Source: onNode("disk")},
			"raw":    {Source: onNode("raw"), Block: true},
			"export": {Source: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "files", Path: "/x"}}},
		},
		Pods: map[string][]string{"a": {"dir", "disk", "export"}, "b": {"dir", "disk", "raw"}},
	}
}

// victim prepares and releases the volumes.
func victim(dir string) error {
	ctx, n := context.Background(), volumenode.Start(nodeAt(dir))
	defer n.Stop()
	if err := n.Bring(ctx); err != nil {
		return err
	}
	if err := n.Take(ctx); err != nil {
		return err
	}
	return n.Empty(ctx)
}

// putTools creates the tools: those of the machine, except for NFS, which is replaced by a
// directory.
func putTools(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o755))
	server := filepath.Join(filepath.Dir(dir), "export")
	must(t, os.Mkdir(server, 0o755))
	must(t, os.WriteFile(filepath.Join(server, "f"), []byte("of export"), 0o600))
	for name, text := range map[string]string{
		"mount": `case "$2" in
nfs) for last; do :; done; exec /usr/bin/mount --bind ` + server + ` "$last";;
*) exec /usr/bin/mount "$@";;
esac`,
		"mount.nfs": "true",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// loop attaches a file to a loop device.
func loop(t *testing.T, file string, size int64) string {
	t.Helper()
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	out, err := exec.Command("losetup", "--show", "-f", file).CombinedOutput()
	if err != nil {
		need.Skip(t, "this machine has no free loop device", err, out)
	}
	disk := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", disk).CombinedOutput(); err != nil {
			t.Errorf("give %s back: %v: %s", disk, err, out)
		}
	})
	return disk
}

// The agent is killed at each change that it and its programs make while it prepares and releases
// local and NFS volumes. The next agent prepares them with their data; after the pods are gone
// nothing is left, and no data is lost.
func TestKilledAtAnyStep(t *testing.T) {
	need.Root(t, "mounting")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	path := func(name string) string { return filepath.Join(dir, name) }
	putTools(t, path("tools"))
	for _, d := range []string{"root", "dir"} {
		must(t, os.Mkdir(path(d), 0o755))
	}
	must(t, os.Symlink(loop(t, path("disk.img"), 16<<20), path("disk")))
	must(t, os.Symlink(loop(t, path("raw.img"), 1<<20), path("raw")))
	t.Cleanup(func() { // nothing, unless the test failed
		points, err := mount.At(dir)
		if err != nil {
			t.Error(err)
		}
		for _, p := range points {
			_ = mount.DetachLoop(p)
			if err := mount.Unmount(p); err != nil {
				t.Error(err)
			}
		}
	})
	must(t, os.WriteFile(path("dir/f"), []byte("of dir"), 0o600))
	must(t, os.WriteFile(path("raw"), []byte("of raw"), 0o600))
	written, lives := false, 0 // the disk has a file system with our file
	died := crash.Run(t, crash.Scene{
		Work:  "local and NFS volumes",
		Dir:   dir,
		Kills: 16,
		Prepare: func() {
			if lives++; lives%3 > 0 { // there is no file system yet
				wipe(t, path("disk"))
				written = false
			}
		},
		Check: func(i int, _ string) {
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			defer stop()
			n := volumenode.Start(nodeAt(dir))
			defer n.Stop()
			if i%3 > 0 {
				must(t, n.Bring(ctx))
				written = readAll(ctx, t, n, written)
			}
			must(t, n.Take(ctx))
			must(t, n.Empty(ctx))
			for file, want := range map[string]string{"dir/f": "of dir", "raw": "of raw", "export/f": "of export"} {
				wantStart(t, path(file), want)
			}
		},
	})
	died.Want(t, "at exec of persistent.test", "at exit of mount", "at its move_mount", "at its umount", "at its mkdir",
		"at its unlink", "at its symlink")
}

// wantStart checks that a file or disk begins with a text.
func wantStart(t *testing.T, path, want string) {
	t.Helper()
	got := make([]byte, len(want))
	f, err := os.Open(path)
	must(t, err)
	if _, err := f.Read(got); err != nil || string(got) != want {
		t.Errorf("%s reads %q, %v", path, got, err)
	}
	must(t, f.Close())
}

// readAll reads the pods' volumes. It writes to the disk unless that was done before.
func readAll(ctx context.Context, t *testing.T, n *volumenode.Node, written bool) bool {
	t.Helper()
	for _, p := range n.Pods() {
		mounts, err := n.Mounts(ctx, p, &p.Spec.Containers[0], nil)
		must(t, err)
		for _, m := range mounts {
			file := filepath.Join(m.HostPath, "f")
			if m.Volume == "disk" && !written {
				must(t, os.WriteFile(file, []byte("of disk"), 0o600))
				written = true
			}
			if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != "of "+m.Volume {
				t.Errorf("%s of pod %s reads %q, %v", m.Volume, p.Name, got, err)
			}
		}
	}
	return written
}

// wipe erases the file system of a disk. Processes of this machine may hold the disk for a moment
// after it was mounted.
func wipe(t *testing.T, disk string) {
	t.Helper()
	await.Within(t, await.Limit, 50*time.Millisecond, "wipefs to succeed", func() (string, bool) {
		out, err := exec.Command("wipefs", "-a", disk).CombinedOutput()
		return fmt.Sprintf("%v: %s", err, out), err == nil
	})
}
