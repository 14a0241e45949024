package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
	"keelson/test/kit/await"
	"keelson/test/kit/silence"
)

// Each test here reproduces a vulnerability of a node agent. All of them fail without the
// countermeasure.

// host is a directory of the node, with a file, that no container has access to.
func host(t *testing.T, n *testNode) string {
	t.Helper()
	dir := filepath.Join(n.root, "host")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wantUntouched checks that the node's directory is unchanged.
func wantUntouched(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the host's directory holds %v, %v", entries, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil || string(got) != "host" {
		t.Fatalf("the host's file is %q, %v", got, err)
	}
	if got := modeOf(t, filepath.Join(dir, "secret")); got != "100600 0:0" {
		t.Fatalf("the host's file became %s", got)
	}
}

func subPathOf(n *testNode, p *v1.Pod, sub string) (string, error) {
	c := &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: sub}}}
	ms, err := n.Mounts(context.Background(), p, c, nil)
	if err != nil {
		return "", err
	}
	return ms[0].HostPath, nil
}

// CVE-2017-1002101: an init container leaves a symlink in the volume, and a later container mounts
// a sub-path through it.
func TestSubPathThroughSymlink(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	dir := n.dir(p, "empty-dir", "e")
	up := strings.Repeat("../", 20)
	for name, to := range map[string]string{
		"abs":  outside,
		"rel":  "../../../../../host",
		"far":  up + outside,
		"root": "/",
		"file": filepath.Join(outside, "secret"),
		"two":  "rel",
		"proc": "/proc/self/root" + outside,
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		for _, sub := range []string{name, name + "/secret", name + "/made"} {
			if at, err := subPathOf(n, p, sub); err == nil {
				t.Errorf("the sub-path %s through a link to %s was mounted at %s", sub, to, at)
			}
		}
	}
	wantUntouched(t, outside)
	n.release(p)
}

// CVE-2017-1002101 and CVE-2021-25741: the container replaces a directory by a symlink between
// check and mount.
func TestSubPathSymlinkRace(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	dir := n.dir(p, "empty-dir", "e")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "d/sub"), 0o777),
		os.Symlink(outside, filepath.Join(dir, "evil")),
		os.Symlink(outside, filepath.Join(dir, "d/evil"))); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 2)
	for _, pair := range [][2]string{{"d", "evil"}, {"d/sub", "d/evil"}} {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, pair[0]), unix.AT_FDCWD,
					filepath.Join(dir, pair[1]),
					unix.RENAME_EXCHANGE)
				if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
					done <- err
					return
				}
			}
		}()
	}
	mounted := 0
	for i := range 400 {
		at, err := subPathOf(n, p, []string{"d/sub", "d", "d/made"}[i%3])
		if err != nil {
			continue
		}
		mounted++
		if _, err := os.Lstat(filepath.Join(at, "secret")); err == nil {
			t.Errorf("the host's directory was mounted at %s", at)
		}
		wantUntouched(t, outside)
	}
	close(stop)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if mounted == 0 {
		t.Error("nothing was ever mounted, so nothing was shown")
	}
	n.release(p)
	wantUntouched(t, outside)
}

// CVE-2017-1002102: releasing a configMap, secret, projected or downwardAPI volume must not follow
// symlinks in it. Containers can only read these volumes.
func TestReleaseDoesNotFollowSymlinks(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	n.objects.putMap("m", map[string]string{"k": "v"})
	n.objects.putSecret("s", map[string][]byte{"k": []byte("v")})
	p := podWith("u1", emptyDirVolume("e", ""), configMapVolume("m", v1.ConfigMapVolumeSource{}),
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}})
	n.ready(p)
	for _, m := range n.mounts(p, &p.Spec.Containers[0])[1:] {
		if !m.ReadOnly {
			t.Errorf("containers can write to %s", m.HostPath)
		}
	}
	dirs := []string{n.dir(p, "empty-dir", "e"), n.dir(p, "configmap", "m"), n.dir(p, "secret", "s")}
	for _, dir := range dirs {
		for _, name := range []string{"link", "..tmp", "..2026_01_01_00_00_00.1"} {
			if err := os.Symlink(outside, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// An update cleans up, then the volume is released.
	n.objects.putMap("m", map[string]string{"k": "v2"})
	n.ObjectChanged([]types.UID{"u1"}, volume.ConfigMap, "m")
	await.Until(t, "the change", func() (string, bool) {
		k := n.read(filepath.Join(dirs[1], "k"))
		return k, k == "v2"
	})
	wantUntouched(t, outside)
	n.release(p)
	if err := n.RemoveDir(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
	wantUntouched(t, outside)
}

// The volume's directory itself is replaced by a symlink, through a hostPath volume: nothing may be
// written or removed at its target.
func TestVolumeDirectoryReplacedBySymlink(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	n.objects.putMap("m", map[string]string{"secret": "from the ConfigMap"})
	n.stop()
	p := podWith("u1", configMapVolume("m", v1.ConfigMapVolumeSource{}))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](3000)}
	dir := n.dir(p, "configmap", "m")
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.Symlink(outside, dir)); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.Want(p)
	n.until("the failure is reported", func() bool { return n.State("u1").Err != nil })
	wantUntouched(t, outside)
	n.release(p)
	wantUntouched(t, outside)
}

// Similar to CVE-2021-25741: sub-paths are unmounted and removed while their directory is replaced
// by a symlink.
func TestReleaseSubPathsDoesNotFollowSymlinks(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	if _, err := subPathOf(n, p, "part"); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(volume.PodDir(n.root, "u1"), "volume-subpaths")
	if err := os.Symlink(outside, filepath.Join(base, "evil")); err != nil {
		t.Fatal(err)
	}
	n.release(p)
	wantUntouched(t, outside)
	if _, err := os.Lstat(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("sub-paths are left: %v", err)
	}
}

// CVE-2023-3676, -3955, -5528: user input was executed in a command. Programs for volumes are run
// without a shell, and user input is passed as separate arguments after the options.
func TestSubPathIsNotExecuted(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	for _, sub := range []string{"$(touch owned)", "`touch owned`", "; touch owned", "a\nb", "-rf", "--", "a b"} {
		at, err := subPathOf(n, p, sub)
		if err != nil {
			t.Errorf("sub-path %q: %v", sub, err)
			continue
		}
		if err := os.WriteFile(filepath.Join(at, "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := n.read(filepath.Join(n.dir(p, "empty-dir", "e"), sub, "f")); got != "x" {
			t.Errorf("sub-path %q leads elsewhere", sub)
		}
	}
	n.release(p)
}

// CVE-2024-10220 and CVE-2025-1767: a gitRepo volume executed programs of the repository as root,
// and could access other pods' repositories on the node.
func TestGitRepoIsNotServed(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", v1.Volume{
		Name: "g",
		VolumeSource: v1.VolumeSource{
			GitRepo: &v1.GitRepoVolumeSource{
				Repository: "/tmp/evil",
				Directory:  "../../x",
				Revision:   "--upload-pack=touch owned",
			},
		},
	})
	n.Want(p)
	n.until("the rejection is reported", func() bool { return n.State("u1").Err != nil })
	if got := n.events.Last(); !strings.Contains(got, "Warning FailedMount") ||
		!strings.Contains(got, "no volume plugin matched") {
		t.Errorf("event is %s", got)
	}
	n.release(p)
}

// A key, or the path that a pod specifies for a key or token, leads out of the volume.
func TestFilePathsStayInVolume(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	up := strings.Repeat("../", 12)
	for i, path := range []string{
		"../secret",
		"a/../../secret",
		outside + "/secret",
		up + outside[1:] + "/secret",
		"..data",
		"..data_tmp/x",
		"..",
		".",
	} {
		n.objects.maps["ref/m"] = &v1.ConfigMap{Data: map[string]string{"k": "v"}}
		for j, src := range []v1.VolumeSource{
			{
				ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "m"},
					Items:                []v1.KeyToPath{{Key: "k", Path: path}},
				},
			},
			{
				Projected: &v1.ProjectedVolumeSource{
					Sources: []v1.VolumeProjection{
						{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: path, ExpirationSeconds: ptr.To[int64](600)}},
					},
				},
			},
			{
				DownwardAPI: &v1.DownwardAPIVolumeSource{
					Items: []v1.DownwardAPIVolumeFile{{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				},
			},
		} {
			p := podWith(types.UID(fmt.Sprint("u", i, "-", j)), v1.Volume{Name: "v", VolumeSource: src})
			n.Want(p)
			n.until("the refusal of "+path, func() bool { return n.State(p.UID).Err != nil })
			if err := n.State(p.UID).Err; !strings.Contains(err.Error(), "invalid path") {
				t.Errorf("path %s: %v", path, err)
			}
			n.release(p)
		}
	}
	// The same from an object, although the API server validates keys.
	n.objects.maps["ref/m"] = &v1.ConfigMap{Data: map[string]string{"../../../../../host/secret": "v"}}
	p := podWith("u-key", configMapVolume("m", v1.ConfigMapVolumeSource{}))
	n.Want(p)
	n.until("the refusal of the key", func() bool { return n.State(p.UID).Err != nil })
	n.release(p)
	wantUntouched(t, outside)
}

// A file system in one pod's volume hangs. The FUSE server is this test, which reads the requests
// without responding.
func TestHungFileSystem(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	stuck := filepath.Join(n.dir(p, "empty-dir", "e"), "stuck")
	if err := os.Mkdir(stuck, 0o755); err != nil {
		t.Fatal(err)
	}
	wake := silence.Mount(t, stuck)

	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	c := &v1.Container{
		Name:         "main",
		VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: "stuck/deeper"}},
	}
	if _, err := n.Mounts(ctx, p, c, nil); err == nil ||
		!strings.Contains(err.Error(), "file system did not respond for ") {
		t.Errorf("Mounts = %v, want the reason when its time is over", err)
	}
	// Other pods are started and deleted meanwhile.
	for i := range 40 {
		other := podWith(types.UID(fmt.Sprint("other-", i)), emptyDirVolume("e", ""), emptyDirVolume("m", "Memory"))
		n.ready(other) // a volume that waited would do so for ever
		n.release(other)
	}
	// The pod gets an event, and can be released when the server responds again.
	n.Release(pod.RefOf(p))
	n.until("the reason is reported", func() bool { _, err := n.Released("u1"); return err != nil })
	wake()
	n.until("it is released", func() bool { done, _ := n.Released("u1"); return done })
}
