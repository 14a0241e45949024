package builtin

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/internal/storage/mount"
	"keelson/test/kit/parity"
)

var (
	generationName = regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`)
	accessName     = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
)

// TestSameFilesAsUpstream prepares the volumes of the recorded pods and compares the mode, owner
// and path of every file, and the mounts.
func TestSameFilesAsUpstream(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	n := newTestNode(t)
	n.objects.maps, n.objects.secrets = referenceObjects().maps, referenceObjects().secrets
	pods, err := referencePods()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		n.ready(p)
	}
	p := pods["ref-burstable"]
	mounts := n.mounts(p, &p.Spec.Containers[0])
	n.mounts(pods["ref-guaranteed"], &pods["ref-guaranteed"].Spec.Containers[0])

	wantReference(t, n)

	// The mounts sent to the runtime, as recorded in the container's status.
	dir := "<root>/pods/<uid-burstable>/"
	for i, w := range []struct {
		container, host string
		readOnly        bool
	}{
		{"/e", "volumes/kubernetes.io~empty-dir/e", false},
		{"/m", "volumes/kubernetes.io~empty-dir/m", false},
		{"/c", "volumes/kubernetes.io~configmap/c", true},
		{"/s", "volumes/kubernetes.io~secret/s", true},
		{"/d", "volumes/kubernetes.io~downward-api/d", true},
		{"/p", "volumes/kubernetes.io~projected/p", true},
		{"/sub", "volume-subpaths/e/main/6", false},
		{"/var/run/secrets/kubernetes.io/serviceaccount", "volumes/kubernetes.io~projected/kube-api-access-<5>", true},
	} {
		m := mounts[i]
		if m.ContainerPath != w.container || normal(n.root, m.HostPath) != dir+w.host || m.ReadOnly != w.readOnly ||
			m.Propagation != "" || m.RecursiveReadOnly || !m.SELinuxRelabel {
			t.Errorf("mount %d = %+v, want %+v", i, m, w)
		}
	}
	if on, err := mount.IsPoint(filepath.Join(n.root, "pods/uid-burstable/volume-subpaths/e/main/6")); err != nil ||
		!on {
		t.Errorf("the sub-path is mounted: %v, %v", on, err)
	}
	if got := slices.Sorted(slices.Values(n.tokens.asked)); !slices.Equal(got,
		[]string{"uid-burstable[] 3600", "uid-burstable[] 3607", "uid-guaranteed[] 3607"}) {
		t.Errorf("tokens requested: %v", got)
	}

	access := shown(t, n.dir(pods["ref-guaranteed"], "projected", "kube-api-access-abcde"))
	if access["ca.crt"] != "PEM" || access["namespace"] != "ref" || !strings.HasPrefix(access["token"], "token-") ||
		len(access) != 3 {
		t.Errorf("what a pod comes to the API server with: %v", access)
	}

	for _, p := range pods {
		n.release(p)
	}
	wantNothingLeft(t, n)
	for _, p := range pods {
		if err := n.RemoveDir(t.Context(), p.UID); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(n.root, "pods")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	parity.Proves(t, "VOL-08", "VOL-40", "VOL-43")
	parity.ProvesPart(t, 8, "VOL-17")
	parity.ProvesPart(t, 3, "VOL-33")
	parity.ProvesPart(t, 3, "VOL-45")
	parity.ProvesPart(t, 2, "VOL-47")
}

// wantReference compares all files and mounts with the recorded ones.
func wantReference(t *testing.T, n *testNode) {
	t.Helper()
	diff(t, "files", strings.Split(strings.TrimSpace(n.read("testdata/files.tsv")), "\n"), recordFiles(t, n.root))
	want := n.read("testdata/mounts.txt")
	if !mount.NoSwap() {
		want = strings.ReplaceAll(want, ",noswap", "")
	}
	diff(t, "mounts", strings.Split(strings.TrimSpace(want), "\n"), recordMounts(t, n.root))
}

// wantNothingLeft allows what upstream also leaves of a released pod: empty directories of plugins.
func wantNothingLeft(t *testing.T, n *testNode) {
	t.Helper()
	if points := n.mounted(); len(points) > 0 {
		t.Errorf("still mounted: %v", points)
	}
	for _, line := range recordFiles(t, n.root) {
		if f := strings.Split(line, "\t"); strings.Count(strings.SplitAfter(f[2], ">/")[2], "/") > 1 {
			t.Errorf("left over: %s", line)
		}
	}
}

func normal(root, path string) string {
	path = strings.Replace(path, root, "<root>", 1)
	path = regexp.MustCompile(`pods/(uid-[a-z]+)`).ReplaceAllString(path, "pods/<$1>")
	path = generationName.ReplaceAllString(path, "..<timestamp>")
	return accessName.ReplaceAllString(path, "kube-api-access-<5>")
}

func recordFiles(t *testing.T, root string) []string {
	t.Helper()
	pods := filepath.Join(root, "pods")
	var out []string
	err := filepath.WalkDir(pods, func(path string, _ fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(pods, path)
		if err != nil || rerr != nil {
			return err
		}
		if strings.Count(rel, "/") == 0 {
			return nil // the pod's own directory
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%o\t%d:%d\t%s", st.Mode, st.Uid, st.Gid, normal(root, path))
		if to, err := os.Readlink(path); err == nil {
			line += " -> " + normal(root, to)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func recordMounts(t *testing.T, root string) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "tmpfs "+root) {
			out = append(out, normal(root, strings.TrimSpace(line)))
		}
	}
	return out
}

func diff(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%s: upstream has %s", what, w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("%s: upstream has no %s", what, g)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s: %d, want %d", what, len(got), len(want))
	}
}
