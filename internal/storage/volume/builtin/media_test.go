package builtin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

// mountedAs returns the file system and options of a mount point.
func mountedAs(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[1] == path {
			return f[2] + " " + f[3]
		}
	}
	return "the disk"
}

func TestVolumeMedia(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-39")
	n := newTestNode(t)
	n.objects.putMap("m", map[string]string{"k": "v"})
	n.objects.putSecret("s", map[string][]byte{"k": []byte("v")})
	limited := emptyDirVolume("limited", v1.StorageMediumMemory)
	limited.EmptyDir.SizeLimit = ptr.To(resource.MustParse("1Mi"))
	p := podWith("uid-media", emptyDirVolume("disk",
		""), emptyDirVolume("memory", v1.StorageMediumMemory), limited, emptyDirVolume("huge", "HugePages-2Mi"),
		configMapVolume("m", v1.ConfigMapVolumeSource{}),
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
		v1.Volume{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}})
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("64Mi"),
		"hugepages-2Mi":   resource.MustParse("4Mi"),
	}
	n.ready(p)
	tmpfs := func(size int) string {
		s := fmt.Sprintf("tmpfs rw,relatime,size=%dk", size)
		if mount.NoSwap() {
			s += ",noswap"
		}
		return s
	}
	for _, tc := range []struct{ plugin, name, want string }{
		{"empty-dir", "disk", "the disk"},
		{"empty-dir", "memory", tmpfs(64 << 10)},
		{"empty-dir", "limited", tmpfs(1 << 10)},
		{"empty-dir", "huge", "hugetlbfs rw,relatime,pagesize=2M"},
		{"configmap", "m", "the disk"},
		{"secret", "s", tmpfs(64 << 10)},
		{"downward-api", "d", tmpfs(64 << 10)},
		{"projected", "p", tmpfs(64 << 10)},
	} {
		dir := n.dir(p, tc.plugin, tc.name)
		if got := mountedAs(t, dir); got != tc.want {
			t.Errorf("%s %s lives on %s, want %s", tc.plugin, tc.name, got, tc.want)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || st.Mode&0o777 != 0o777 {
			t.Errorf("%s %s is %o, %v, want it open to all users of containers", tc.plugin, tc.name, st.Mode, err)
		}
	}
	n.release(p)
	wantNothingLeft(t, n)

	// With swap enabled and without noswap support, a warning is recorded on the node.
	n.stop()
	events := &eventlog.Log{}
	for _, may := range []bool{false, true} {
		n.maySwap = may
		n.events = events
		n.start()
		n.ready(podWith(types.UID(fmt.Sprint("swap-", may)), emptyDirVolume("disk", "")))
		n.stop()
	}
	if got := events.Lines(); len(got) != 1 ||
		!strings.HasPrefix(got[0],
			"node Warning PossibleMemoryBackedVolumesOnDisk The tmpfs noswap option is not supported.") {
		t.Errorf("events are %q, want one", got)
	}
	parity.ProvesPart(t, 3, "VOL-38")
}

// Volumes of an orphaned pod are released from what is on the disk: sub-paths, volumes of every
// kind, then the directory, unless there is another mount in it.
func TestReleaseOrphanedPods(t *testing.T) {
	n := newTestNode(t)
	n.objects.putSecret("s", map[string][]byte{"k": []byte("v")})
	vols := []v1.Volume{
		emptyDirVolume("e", ""),
		emptyDirVolume("mem", "Memory"),
		{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
	}
	clean, busy := podWith("clean", vols...), podWith("busy", vols...)
	for _, p := range []*v1.Pod{clean, busy} {
		n.ready(p)
		c := &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: "part"}}}
		n.mounts(p, c)
	}
	// Another agent left volumes of an unsupported kind.
	foreign := filepath.Join(volume.PodDir(n.root, "clean"), "volumes/example.com~thing/v")
	if err := errors.Join(os.MkdirAll(foreign, 0o755), mount.Tmpfs(foreign, 1<<20)); err != nil {
		t.Fatal(err)
	}
	// A disk was mounted in the other pod's directory.
	precious := filepath.Join(volume.PodDir(n.root, "busy"), "etc")
	if err := errors.Join(os.MkdirAll(precious, 0o755), mount.Tmpfs(precious, 1<<20),
		os.WriteFile(filepath.Join(precious, "f"), []byte("kept"), 0o600)); err != nil {
		t.Fatal(err)
	}
	n.restart()
	orphans, err := n.Orphans(func(types.UID) bool { return false })
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(orphans)), []types.UID{"busy", "clean"}) {
		t.Fatalf("orphans are %v, %v", orphans, err)
	}
	for _, uid := range orphans {
		n.Release(pod.Ref{UID: uid})
		n.until("volumes of "+string(uid)+" are released", func() bool { done, _ := n.Released(uid); return done })
	}
	if got := n.mounted(); !slices.Equal(got, []string{precious}) {
		t.Errorf("mounts are %v, want only what is no volume's", got)
	}
	if err := n.RemoveDir(t.Context(), "clean"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(volume.PodDir(n.root, "clean")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the pod whose volumes are gone is left: %v", err)
	}
	if err := n.RemoveDir(t.Context(), "busy"); !errors.Is(err, mount.ErrMounted) {
		t.Errorf("RemoveDir = %v of a directory with a foreign disk in it", err)
	}
	if got, err := os.ReadFile(filepath.Join(precious, "f")); err != nil || string(got) != "kept" {
		t.Fatalf("what is behind the mount is %q, %v", got, err)
	}
	counted := map[string]float64{}
	for _, name := range []string{"kubelet_orphan_pod_cleaned_volumes", "kubelet_orphan_pod_cleaned_volumes_errors",
		"reconstruct_volume_operations_total",
		"reconstruct_volume_operations_errors_total", "force_cleaned_failed_volume_operations_total",
		"force_cleaned_failed_volume_operation_errors_total"} {
		counted[name] = metricOf(t, n, name)
	}
	if want := fmt.Sprint(map[string]float64{
		"kubelet_orphan_pod_cleaned_volumes":                 2,
		"kubelet_orphan_pod_cleaned_volumes_errors":          0,
		"reconstruct_volume_operations_total":                7,
		"reconstruct_volume_operations_errors_total":         1,
		"force_cleaned_failed_volume_operations_total":       1,
		"force_cleaned_failed_volume_operation_errors_total": 0,
	}); fmt.Sprint(counted) != want {
		t.Errorf("counted %v, want %s", counted, want)
	}
	parity.Proves(t, "VOL-07")
	parity.ProvesPart(t, 4, "VOL-06")
}
