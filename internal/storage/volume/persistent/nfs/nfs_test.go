package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// programs are stand-ins for the machine's: mount writes its arguments to a file and mounts a
// tmpfs, or fails.
func programs(t *testing.T, names ...string) mount.Tools {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		script := "#!/bin/sh\n"
		if name == "mount" {
			script += `echo "$@" >> ` + dir + `/calls
for last; do :; done
case "$*" in *refused*) echo "mount.nfs: Connection refused" >&2; exit 32;; esac
PATH=/usr/sbin:/usr/bin:/sbin:/bin exec mount -t tmpfs none "$last"
`
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return mount.Tools{Path: dir}
}

func request(t *testing.T, server string, change func(*v1.PersistentVolume)) persistent.Request {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place := volume.PlaceOf(root, "u1", name, "v", false)
	t.Cleanup(func() {
		if err := mount.Unmount(place.Path); err != nil {
			t.Error(err)
		}
	})
	s := persistent.Spec{Name: "v"}
	src := &v1.NFSVolumeSource{Server: server, Path: "/export"}
	if change == nil {
		s.Inline = &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{NFS: src}}
	} else {
		s.PV = &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{NFS: src}},
		}
		change(s.PV)
	}
	return persistent.Request{Spec: s, Place: place, Pod: &v1.Pod{}}
}

func TestMountAndUnmount(t *testing.T) {
	parity.ProvesPart(t, 2, "VOL-50")
	need.Root(t, "mounting")
	tools := programs(t, "mount", "mount.nfs")
	p := New(Config{Guard: mount.NewGuard(), Tools: tools})
	for _, tc := range []struct {
		name   string
		server string
		change func(*v1.PersistentVolume)
		want   string // arguments of mount
	}{
		{"a volume that the pod names", "files.example", nil, "-t nfs -- files.example:/export "},
		{"an address", "192.0.2.1", nil, "-t nfs -- 192.0.2.1:/export "},
		{"one with colons", "2001:db8::1", nil, "-t nfs -- [2001:db8::1]:/export "},
		{
			"options of a PersistentVolume",
			"files",
			func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"nfsvers=4.2", "hard"} },
			"-t nfs -o hard,nfsvers=4.2 -- files:/export ",
		},
		{"options of the annotation take precedence", "files", func(pv *v1.PersistentVolume) {
			pv.Spec.MountOptions = []string{"hard"}
			pv.Annotations = map[string]string{"volume.beta.kubernetes.io/mount-options": "soft,,noatime"}
		}, "-t nfs -o noatime,soft -- files:/export "},
		{"a PersistentVolume with readOnly, which is ignored", "files",
			func(pv *v1.PersistentVolume) { pv.Spec.NFS.ReadOnly = true }, "-t nfs -- files:/export "},
		{
			"a path that looks like an option",
			"files",
			func(pv *v1.PersistentVolume) { pv.Spec.NFS.Path = "-o exec" },
			"-t nfs -- files:-o exec ",
		},
		{"a server that looks like one", "--bind", nil, "-t nfs -- --bind:/export "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request(t, tc.server, tc.change)
			if !p.Serves(r.Spec) {
				t.Fatal("it is not served")
			}
			for range 2 { // the second time it is mounted already
				out, err := p.Publish(t.Context(), r)
				if err != nil || out.Path != r.Place.Path || out.ReadOnly != strings.Contains(tc.want, "-o ro") ||
					out.Relabel {
					t.Fatalf("Publish = %+v, %v", out, err)
				}
			}
			logged, err := os.ReadFile(filepath.Join(tools.Path, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(tools.Path, "calls")); err != nil {
				t.Fatal(err)
			}
			if string(logged) != tc.want+r.Place.Path+"\n" {
				t.Errorf("mount got %q, want %q", logged, tc.want)
			}
			for range 2 {
				if err := p.Unpublish(t.Context(), r.Place); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Lstat(r.Place.Path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its directory is left: %v", err)
			}
		})
	}
}

// A volume is read-only if the claim reference or the inline volume in the pod is.
func TestReadOnlyMount(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-26")
	need.Root(t, "mounting")
	tools := programs(t, "mount", "mount.nfs")
	p := New(Config{Guard: mount.NewGuard(), Tools: tools})
	inline := request(t, "files", nil)
	inline.Inline.NFS.ReadOnly = true
	claim := request(t, "files", func(*v1.PersistentVolume) {})
	claim.ReadOnly = true
	for name, r := range map[string]persistent.Request{"inline": inline, "claim": claim} {
		out, err := p.Publish(t.Context(), r)
		if err != nil || !out.ReadOnly {
			t.Errorf("%s: Publish = %+v, %v; want a read-only volume", name, out, err)
		}
		logged, err := os.ReadFile(filepath.Join(tools.Path, "calls"))
		want := "-t nfs -o ro -- files:/export " + r.Place.Path + "\n"
		if err != nil || !strings.HasSuffix(string(logged), want) {
			t.Errorf("%s: mount got %q, %v; want %q", name, logged, err, want)
		}
		if err := p.Unpublish(t.Context(), r.Place); err != nil {
			t.Error(err)
		}
	}
}

// The group of the export is kept, whatever the pod's fsGroup.
func TestFSGroupIsNotApplied(t *testing.T) {
	need.Root(t, "mounting")
	parity.ProvesPart(t, 8, "VOL-17")
	p := New(Config{Guard: mount.NewGuard(), Tools: programs(t, "mount", "mount.nfs")})
	r := request(t, "files", nil)
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}
	if _, err := p.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(r.Place.Path, &st); err != nil || st.Gid != 0 || st.Mode&unix.S_ISGID != 0 {
		t.Errorf("the volume is %o of group %d, %v", st.Mode, st.Gid, err)
	}
}

func TestFailures(t *testing.T) {
	guard := mount.NewGuard()
	p := New(Config{Guard: guard, Tools: programs(t, "mount")})
	r := request(t, "files", nil)
	if _, err := p.Publish(t.Context(), r); !errors.Is(err, mount.ErrNoTool) ||
		!strings.Contains(err.Error(), "mount.nfs is not installed on this node: install nfs-common or nfs-utils") {
		t.Errorf("without the helper: %v", err)
	}
	if _, err := os.Lstat(r.Place.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory is left: %v", err)
	}
	p = New(Config{Guard: guard, Tools: programs(t, "mount", "mount.nfs")})
	r = request(t, "refused", nil)
	want := fmt.Sprintf("mount failed: exit status 32\nMounting command: mount\n"+
		"Mounting arguments: -t nfs refused:/export %s\nOutput: mount.nfs: Connection refused\n", r.Place.Path)
	if _, err := p.Publish(t.Context(), r); err == nil || err.Error() != want {
		t.Errorf("refused: %v, want %s", err, want)
	}
	for _, server := range []string{"a:/etc b", "a/b", "a b", "host:"} {
		if _, err := p.Publish(t.Context(), request(t, server, nil)); err == nil ||
			!strings.Contains(err.Error(), "neither a name nor an address") {
			t.Errorf("server %q: %v", server, err)
		}
	}
}

// The server is gone: the regular unmount hangs.
func TestForcedUnmount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := mount.NewGuard()
		p := New(Config{Guard: guard})
		place := volume.Place{UID: "u1", Name: "v", Path: filepath.Join(t.TempDir(), "v")}
		hang := make(chan struct{})
		go func() { _ = guard.Do(context.Background(), place.Path, "stat", func() error { <-hang; return nil }) }()
		synctest.Wait()
		forced := false
		p.detach = func(target string) error { forced = target == place.Path; return nil }
		began := time.Now()
		if err := p.Unpublish(t.Context(), place); err != nil {
			t.Errorf("Unpublish = %v", err)
		}
		if took := time.Since(began); !forced || took != time.Minute {
			t.Errorf("forced = %v after %v, want after a minute", forced, took)
		}
		close(hang)
	})
	// Or so many calls of the pod hang that it is not even started.
	synctest.Test(t, func(t *testing.T) {
		guard := mount.NewGuard()
		p := New(Config{Guard: guard})
		place := volume.Place{UID: "u1", Name: "v", Path: filepath.Join(t.TempDir(), "v")}
		ctx, hang := mount.Owned(t.Context(), "pod u1"), make(chan struct{})
		for i := range 1000 {
			go func() { _ = guard.Do(ctx, fmt.Sprint(i), "measure volume", func() error { <-hang; return nil }) }()
		}
		time.Sleep(time.Minute)
		forced := 0
		p.detach = func(string) error { forced++; close(hang); return nil }
		if err := p.Unpublish(ctx, place); err != nil || forced != 1 {
			t.Errorf("Unpublish = %v, forced %d times", err, forced)
		}
	})
	parity.ProvesPart(t, 2, "VOL-50")
}
