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
	"keelson/test/kit/silence"
)

// Each test here tells a vulnerability that a node agent has had, as the attack
// that it was. All of them fail when the defence is taken out.

// host is a directory of the node that no container was given, with a file.
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

// wantUntouched fails if the node's directory is not as host made it.
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

// CVE-2017-1002101: an init container leaves a symlink in the volume, and a later
// container mounts a sub-path through it.
func TestSubPathThroughASymlink(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	dir := n.dir(p, "empty-dir", "e")
	up := strings.Repeat("../", 20)
	for name, to := range map[string]string{"abs": outside, "rel": "../../../../../host", "far": up + outside, "root": "/", "file": filepath.Join(outside, "secret"), "two": "rel", "proc": "/proc/self/root" + outside} {
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

// CVE-2017-1002101 and CVE-2021-25741: the container swaps a directory and a
// symlink while the agent looks at one and mounts the other.
func TestSubPathDuringASwap(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	dir := n.dir(p, "empty-dir", "e")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "d/sub"), 0o777), os.Symlink(outside, filepath.Join(dir, "evil")), os.Symlink(outside, filepath.Join(dir, "d/evil"))); err != nil {
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
				err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, pair[0]), unix.AT_FDCWD, filepath.Join(dir, pair[1]), unix.RENAME_EXCHANGE)
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

// CVE-2017-1002102: what releasing a configMap, secret, projected or downwardAPI
// volume removes must be the volume, whatever symlinks are in it; and it is not
// the container that writes there.
func TestReleaseRemovesNothingThroughSymlinks(t *testing.T) {
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
	// An update tidies up, then all is released.
	n.objects.putMap("m", map[string]string{"k": "v2"})
	n.ObjectChanged([]types.UID{"u1"}, volume.ConfigMap, "m")
	for end := time.Now().Add(time.Minute); n.read(filepath.Join(dirs[1], "k")) != "v2"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the change never came")
		}
	}
	wantUntouched(t, outside)
	n.release(p)
	if err := n.RemoveDir(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
	wantUntouched(t, outside)
}

// The directory of the volume itself is replaced by a symlink, which somebody can
// who has a hostPath on it: nothing is written or removed where it leads.
func TestVolumeThatIsASymlink(t *testing.T) {
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
	n.until("the failure is told", func() bool { return n.State("u1").Err != nil })
	wantUntouched(t, outside)
	n.release(p)
	wantUntouched(t, outside)
}

// CVE-2021-25741's cousin: sub-paths are unmounted and removed while a symlink
// stands where their directory was.
func TestReleaseOfSubPathsThroughASymlink(t *testing.T) {
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

// CVE-2023-3676, -3955, -5528: words of a user's specification were put into a
// command. The only programs that are run for volumes get them as arguments of
// their own, after the options.
func TestSubPathsAreNoCommands(t *testing.T) {
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

// CVE-2024-10220 and CVE-2025-1767: a gitRepo volume ran programs of the repository
// as root, and could name other pods' repositories on the node.
func TestGitRepoIsNotServed(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", v1.Volume{Name: "g", VolumeSource: v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{Repository: "/tmp/evil", Directory: "../../x", Revision: "--upload-pack=touch owned"}}})
	n.Want(p)
	n.until("the refusal is told", func() bool { return n.State("u1").Err != nil })
	if got := n.events.last(); !strings.Contains(got, "Warning FailedMount") || !strings.Contains(got, "no volume plugin matched") {
		t.Errorf("event is %s", got)
	}
	n.release(p)
}

// A key, or the path that a pod gives a key or a token, leads out of the volume.
func TestFilesCannotLeadOut(t *testing.T) {
	n := newTestNode(t)
	outside := host(t, n)
	up := strings.Repeat("../", 12)
	for i, path := range []string{"../secret", "a/../../secret", outside + "/secret", up + outside[1:] + "/secret", "..data", "..data_tmp/x", "..", "."} {
		n.objects.maps["ref/m"] = &v1.ConfigMap{Data: map[string]string{"k": "v"}}
		for j, src := range []v1.VolumeSource{
			{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}, Items: []v1.KeyToPath{{Key: "k", Path: path}}}},
			{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: path, ExpirationSeconds: ptr.To[int64](600)}}}}},
			{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
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
	// The same from an object: its keys are names, and the API server sees to that.
	n.objects.maps["ref/m"] = &v1.ConfigMap{Data: map[string]string{"../../../../../host/secret": "v"}}
	p := podWith("u-key", configMapVolume("m", v1.ConfigMapVolumeSource{}))
	n.Want(p)
	n.until("the refusal of the key", func() bool { return n.State(p.UID).Err != nil })
	n.release(p)
	wantUntouched(t, outside)
}

// A file system that never answers, in one pod's volume, and the agent goes on.
// The server behind it is this test, which takes the requests and is silent.
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
	c := &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: "stuck/deeper"}}}
	if _, err := n.Mounts(ctx, p, c, nil); err == nil || !strings.Contains(err.Error(), "no answer from the file system for ") {
		t.Errorf("Mounts = %v, want the reason when its time is over", err)
	}
	// Other pods come and go meanwhile.
	for i := range 40 {
		other := podWith(types.UID(fmt.Sprint("other-", i)), emptyDirVolume("e", ""), emptyDirVolume("m", "Memory"))
		n.ready(other) // one that waited would wait for ever
		n.release(other)
	}
	// Its own pod says what it waits for, and goes once the server is back.
	n.Release(pod.RefOf(p))
	n.until("the reason is told", func() bool { _, err := n.Released("u1"); return err != nil })
	wake()
	n.until("it is released", func() bool { done, _ := n.Released("u1"); return done })
}
