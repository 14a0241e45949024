package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

func emptyDirVolume(name string, medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

func configMapVolume(name string, src v1.ConfigMapVolumeSource) v1.Volume {
	src.Name = name
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &src}}
}

func modeOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
}

func TestEmptyDirKeepsContent(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", emptyDirVolume("disk", ""), emptyDirVolume("mem", "Memory"))
	n.ready(p)
	for _, name := range []string{"disk", "mem"} {
		dir := n.dir(p, "empty-dir", name)
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := len(n.mounted())
	n.restart()
	n.ready(p)
	for _, name := range []string{"disk", "mem"} {
		dir := n.dir(p, "empty-dir", name)
		if got := n.read(filepath.Join(dir, "f")); got != "kept" {
			t.Errorf("%s holds %q after a restart", name, got)
		}
		if got := modeOf(t, dir); got != "40700 0:0" {
			t.Errorf("%s is %s after a restart, want what the container made of it", name, got)
		}
	}
	if after := len(n.mounted()); after != before {
		t.Errorf("%d mounts after a restart, want %d", after, before)
	}
	n.release(p)
	if left := n.mounted(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

func TestEmptyDirFromPartialState(t *testing.T) {
	n := newTestNode(t)
	n.stop()
	for i, half := range []func(dir, meta string) error{
		func(dir, _ string) error { return os.MkdirAll(dir, 0o700) },
		func(dir, meta string) error { // mounted, but no marker
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return mount.Tmpfs(dir, 1<<20)
		},
		func(dir, meta string) error { // marker, and then the node was rebooted
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return mark(meta)
		},
		func(_, meta string) error { return mark(meta) },
	} {
		p := podWith(types.UID(fmt.Sprint("half-", i)), emptyDirVolume("mem", "Memory"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](3000)}
		dir := n.dir(p, "empty-dir", "mem")
		if err := half(dir,
			filepath.Join(n.root, "pods", string(p.UID), "plugins", "kubernetes.io~empty-dir", "mem")); err != nil {
			t.Fatal(err)
		}
		n.start()
		n.ready(p)
		if got := modeOf(t, dir); got != "43777 0:3000" {
			t.Errorf("%d: the volume is %s, want 43777 0:3000", i, got)
		}
		if on := n.mounted(); len(on) != 1 {
			t.Errorf("%d: mounts are %v, want one", i, on)
		}
		n.release(p)
		n.stop()
	}
}

// Volumes left by another agent, or by a crash during a release, are released from what is on the
// disk.
func TestReleaseFromDisk(t *testing.T) {
	n := newTestNode(t)
	n.objects.putMap("m", map[string]string{"k": "v"})
	p := podWith("u1", emptyDirVolume("mem", "Memory"), emptyDirVolume("disk", ""),
		configMapVolume("m", v1.ConfigMapVolumeSource{}))
	p.Spec.Containers[0].VolumeMounts[1].SubPath = "part"
	n.ready(p)
	n.mounts(p, &p.Spec.Containers[0])
	n.restart()
	if orphans, err := n.Orphans(func(types.UID) bool { return false }); err != nil || len(orphans) != 1 ||
		orphans[0] != "u1" {
		t.Errorf("orphans = %v, %v", orphans, err)
	}
	if orphans, err := n.Orphans(func(types.UID) bool { return true }); err != nil || len(orphans) != 0 {
		t.Errorf("orphans among known pods = %v, %v", orphans, err)
	}
	n.release(p)
	if on := n.mounted(); len(on) != 0 {
		t.Errorf("still mounted: %v", on)
	}
	if err := n.RemoveDir(context.Background(), "u1"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(volume.PodDir(n.root, "u1")); !os.IsNotExist(err) {
		t.Errorf("the pod's directory is still there: %v", err)
	}
	n.release(p) // a pod without any state
}

func TestReleaseStopsAtForeignMount(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", emptyDirVolume("disk", ""))
	n.ready(p)
	inner := filepath.Join(n.dir(p, "empty-dir", "disk"), "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mount.Tmpfs(inner, 1<<20); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(inner, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Release(pod.RefOf(p))
	n.until("the failure is reported", func() bool { _, err := n.Released("u1"); return err != nil })
	if done, err := n.Released("u1"); done || !strings.Contains(err.Error(), "something is mounted there") {
		t.Errorf("Released = %v, %v", done, err)
	}
	if err := n.RemoveDir(context.Background(), "u1"); err == nil {
		t.Error("the directory of a pod with volumes was removed")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Fatalf("data behind a mount is gone: %v", err)
	}
	if err := mount.Unmount(inner); err != nil {
		t.Fatal(err)
	}
	n.until("it is released once the mount is gone", func() bool { done, _ := n.Released("u1"); return done })
}

func TestFilesFollowObjects(t *testing.T) {
	n := newTestNode(t)
	n.objects.putMap("m", map[string]string{"k": "one"})
	n.objects.putSecret("s", map[string][]byte{"k": []byte("one")})
	p := podWith("u1", configMapVolume("m", v1.ConfigMapVolumeSource{}),
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		v1.Volume{
			Name: "p",
			VolumeSource: v1.VolumeSource{
				Projected: &v1.ProjectedVolumeSource{
					Sources: []v1.VolumeProjection{
						{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}},
					},
				},
			},
		})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{
		Name:      "m",
		MountPath: "/k",
		SubPath:   "k",
	})
	n.ready(p)
	sub := n.mounts(p, &p.Spec.Containers[0])[3].HostPath

	n.objects.putMap("m", map[string]string{"k": "two"})
	n.objects.putSecret("s", map[string][]byte{"k": []byte("two")})
	n.ObjectChanged([]types.UID{"u1", "unknown"}, volume.ConfigMap, "m")
	n.ObjectChanged([]types.UID{"u1"}, volume.Secret, "s")
	for _, f := range []string{n.dir(p, "configmap", "m"), n.dir(p, "secret", "s"), n.dir(p, "projected", "p")} {
		await.True(t, "a change of "+f, func() bool { return n.read(filepath.Join(f, "k")) == "two" })
	}
	if got := n.read(sub); got != "one" {
		t.Errorf("the sub-path shows %q, want the file it was mounted from", got)
	}
	// The next start of the container mounts the current file.
	if got := n.read(n.mounts(p, &p.Spec.Containers[0])[3].HostPath); got != "two" {
		t.Errorf("after a restart of the container the sub-path shows %q", got)
	}
	n.release(p)
	parity.Differs(t, "VOL-32", "0126")
}

func TestMissingObjects(t *testing.T) {
	n := newTestNode(t)
	n.objects.putMap("some", map[string]string{"here": "1"})
	n.objects.putSecret("half", map[string][]byte{"here": []byte("1")})
	p := podWith("u1",
		configMapVolume("none", v1.ConfigMapVolumeSource{Optional: ptr.To(true)}),
		configMapVolume("some", v1.ConfigMapVolumeSource{
			Optional: ptr.To(true),
			Items:    []v1.KeyToPath{{Key: "here", Path: "x"}, {Key: "gone", Path: "y"}},
		}),
		v1.Volume{
			Name:         "sec",
			VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "gone", Optional: ptr.To(true)}},
		},
		v1.Volume{
			Name: "part",
			VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{
				SecretName: "half",
				Optional:   ptr.To(true),
				Items:      []v1.KeyToPath{{Key: "here", Path: "x"}, {Key: "gone", Path: "y"}},
			}},
		},
		v1.Volume{
			Name: "both",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "some"}}},
				{ConfigMap: &v1.ConfigMapProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "gone"},
					Optional:             ptr.To(true),
				}},
				{Secret: &v1.SecretProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "gone"},
					Optional:             ptr.To(true),
				}},
			}}},
		})
	n.ready(p)
	wantShown(t, n.dir(p, "secret", "sec"))
	wantShown(t, n.dir(p, "secret", "part"), "x", "1")
	wantShown(t, n.dir(p, "projected", "both"), "here", "1")
	wantShown(t, n.dir(p, "configmap", "none"))
	wantShown(t, n.dir(p, "configmap", "some"), "x", "1")
	n.objects.putMap("none", map[string]string{"late": "2"})
	n.ObjectChanged([]types.UID{"u1"}, volume.ConfigMap, "none")
	await.Until(t, "the optional object", func() (string, bool) {
		files := shown(t, n.dir(p, "configmap", "none"))
		return fmt.Sprint(files), files["late"] == "2"
	})

	for _, tc := range []struct {
		v    v1.Volume
		want string
	}{
		{
			configMapVolume("gone", v1.ConfigMapVolumeSource{}),
			`MountVolume.SetUp failed for volume "gone" : configmap "gone" not found`,
		},
		{
			v1.Volume{Name: "sec", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "gone"}}},
			`MountVolume.SetUp failed for volume "sec" : secret "gone" not found`,
		},
		{
			configMapVolume("some", v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Key: "gone", Path: "y"}}}),
			`MountVolume.SetUp failed for volume "some" : configmap references non-existent config key: gone`,
		},
		{v1.Volume{
			Name: "secret-key",
			VolumeSource: v1.VolumeSource{
				Secret: &v1.SecretVolumeSource{SecretName: "half", Items: []v1.KeyToPath{{Key: "gone", Path: "y"}}},
			},
		}, `MountVolume.SetUp failed for volume "secret-key" : references non-existent secret key: gone`},
		{v1.Volume{
			Name: "shown",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{
					{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "gone"}}},
				},
			}},
		}, `MountVolume.SetUp failed for volume "shown" : secret "gone" not found`},
		{v1.Volume{
			Name: "shown-key",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "some"},
					Items:                []v1.KeyToPath{{Key: "gone", Path: "y"}},
				}}},
			}},
		}, `MountVolume.SetUp failed for volume "shown-key" : configmap references non-existent config key: gone`},
		{
			v1.Volume{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
			`Unable to attach or mount volumes: unmounted volumes=[nfs], unattached volumes=[], failed to process ` +
				`volumes=[nfs]: failed to get Plugin from volumeSpec for volume "nfs" err=no volume plugin matched`,
		},
		{
			v1.Volume{
				Name: "ctb",
				VolumeSource: v1.VolumeSource{
					Projected: &v1.ProjectedVolumeSource{
						Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}},
					},
				},
			},
			`MountVolume.SetUp failed for volume "ctb" : projected source clusterTrustBundle is not supported by this node`,
		},
	} {
		bad := podWith(types.UID("bad-"+tc.v.Name), tc.v)
		n.Want(bad)
		n.until("the failure of "+tc.v.Name+" is reported", func() bool { return n.State(bad.UID).Err != nil })
		want := bad.Name + " Warning FailedMount " + tc.want
		n.lastEvent(want) // a moment after the lookup fails
		if _, err := n.Mounts(context.Background(), bad, &bad.Spec.Containers[0], nil); err == nil ||
			err.Error() != fmt.Sprintf("cannot find volume %q to mount into container \"main\"", tc.v.Name) {
			t.Errorf("Mounts = %v", err)
		}
		n.release(bad)
	}
	n.release(p)
	parity.Proves(t, "VOL-35")
}

func TestBinaryDataAndFileModes(t *testing.T) {
	n := newTestNode(t)
	n.objects.maps["ref/m"] = &v1.ConfigMap{
		Data:       map[string]string{"text": "t"},
		BinaryData: map[string][]byte{"bin": {0, 255}},
	}
	p := podWith("u1", configMapVolume("m", v1.ConfigMapVolumeSource{
		DefaultMode: ptr.To[int32](0o400),
		Items: []v1.KeyToPath{
			{Key: "text", Path: "a/text"}, {Key: "bin", Path: "bin", Mode: ptr.To[int32](0o711)}},
	}))
	n.ready(p)
	dir := n.dir(p, "configmap", "m")
	wantShown(t, dir, "a/text", "t", "bin", "\x00\xff")
	for path, want := range map[string]string{
		"..data/a":      "40755 0:0",
		"..data/a/text": "100400 0:0",
		"..data/bin":    "100711 0:0",
	} {
		if got := modeOf(t, filepath.Join(dir, path)); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	n.release(p)
	// The same holds for the other kinds. The default mode is 0644.
	n.objects.putSecret("s", map[string][]byte{"k": []byte("v"), "l": []byte("w")})
	keys := []v1.KeyToPath{{Key: "k", Path: "own", Mode: ptr.To[int32](0o710)}, {Key: "l", Path: "plain"}}
	named := v1.ObjectFieldSelector{FieldPath: "metadata.name"}
	fields := []v1.DownwardAPIVolumeFile{
		{Path: "own", FieldRef: &named, Mode: ptr.To[int32](0o710)},
		{Path: "plain", FieldRef: &named},
	}
	secret := func(mode *int32) v1.VolumeSource {
		return v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Items: keys, DefaultMode: mode}}
	}
	downward := func(mode *int32) v1.VolumeSource {
		return v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields, DefaultMode: mode}}
	}
	projected := func(mode *int32) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			DefaultMode: mode,
			Sources: []v1.VolumeProjection{
				{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: keys}},
			},
		}}
	}
	for kind, of := range map[string]func(*int32) v1.VolumeSource{
		"secret":       secret,
		"downward-api": downward,
		"projected":    projected,
	} {
		p := podWith(types.UID("modes-"+kind), v1.Volume{Name: "given", VolumeSource: of(ptr.To[int32](0o444))},
			v1.Volume{Name: "unsaid", VolumeSource: of(nil)})
		n.ready(p)
		for path, want := range map[string]string{
			"given/..data/own":    "100710 0:0",
			"given/..data/plain":  "100444 0:0",
			"unsaid/..data/own":   "100710 0:0",
			"unsaid/..data/plain": "100644 0:0",
		} {
			if got := modeOf(t, n.dir(p, kind, path)); got != want {
				t.Errorf("%s: %s is %s, want %s", kind, path, got, want)
			}
		}
		n.release(p)
	}
	parity.Proves(t, "VOL-34")
	parity.ProvesPart(t, 3, "VOL-33")
}

func TestDownwardAPIFollowsPod(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", v1.Volume{
		Name: "d",
		VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "notes", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
			{
				Path: "cpu",
				ResourceFieldRef: &v1.ResourceFieldSelector{
					ContainerName: "main",
					Resource:      "limits.cpu",
					Divisor:       resource.MustParse("1m"),
				},
			},
		}}},
	})
	p.Labels = map[string]string{"b": "2", "a": "1"}
	p.Annotations = map[string]string{"example.com/z": "last", "example.com/a": "say \"hi\"\n\tback\\slash"}
	n.ready(p)
	dir := n.dir(p, "downward-api", "d")
	notes := `example.com/a="say \"hi\"\n\tback\\slash"` + "\n" + `example.com/z="last"`
	wantShown(t, dir, "labels", "a=\"1\"\nb=\"2\"", "notes", notes, "cpu", "2000")
	before := stamps(t, dir)
	same := p.DeepCopy()
	n.Want(same)
	edited := p.DeepCopy()
	edited.Labels["a"] = "new"
	edited.Annotations = nil
	edited.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m")}
	edited.Generation++
	n.Want(edited)
	await.Until(t, "the new label", func() (string, bool) {
		files := shown(t, dir)
		return fmt.Sprint(files), files["labels"] == "a=\"new\"\nb=\"2\""
	})
	// The old generation is removed after the new one is visible.
	await.True(t, "the removal of the old generation", func() bool { return generations(t, dir) == 1 })
	wantShown(t, dir, "labels", "a=\"new\"\nb=\"2\"", "notes", "", "cpu", "300")
	if before[dir].Equal(stamps(t, dir)[dir]) {
		t.Error("the change left no trace in the directory")
	}
	n.release(p)
	parity.Proves(t, "VOL-44")
}

func TestTokenRefresh(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", v1.Volume{
		Name: "tok",
		VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{
				ServiceAccountToken: &v1.ServiceAccountTokenProjection{
					Path:              "tok",
					Audience:          "vault",
					ExpirationSeconds: ptr.To[int64](600),
				},
			}}}},
	})
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: ptr.To[int64](1234)}
	n.ready(p)
	dir := n.dir(p, "projected", "tok")
	wantShown(t, dir, "tok", "token-1")
	if got := modeOf(t, filepath.Join(dir, "..data/tok")); got != "100600 1234:0" {
		t.Errorf("the token is %s, want it for its user alone", got)
	}
	if got := modeOf(t, filepath.Join(dir, "tok")); got != "120777 1234:0" {
		t.Errorf("the token's link is %s", got)
	}
	if n.tokens.asked[0] != "u1[vault] 600" {
		t.Errorf("requested %s", n.tokens.asked[0])
	}
	n.release(p)
}

// Volumes on the node's disk or in memory are measured by their files.
func TestMeasureVolumes(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-27")
	n := newTestNode(t)
	n.objects.putMap("m", map[string]string{"k": "v"})
	n.objects.putSecret("s", map[string][]byte{"k": []byte("v")})
	p := podWith("u1", emptyDirVolume("disk",
		""), emptyDirVolume("memory", v1.StorageMediumMemory), configMapVolume("m", v1.ConfigMapVolumeSource{}),
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}})
	n.ready(p)
	for i, name := range []string{"disk", "memory"} {
		dir := n.dir(p, "empty-dir", name)
		for _, err := range []error{
			os.WriteFile(filepath.Join(dir, "f"), make([]byte, (i+1)*300<<10), 0o600),
			os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "same")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	n.Refresh(t.Context())
	stats := n.Stats(p.UID)
	if len(stats) != 4 {
		t.Fatalf("measured %+v", stats)
	}
	for _, s := range stats {
		dir := n.dir(p,
			map[string]string{
				"disk":   "empty-dir",
				"memory": "empty-dir",
				"m":      "configmap",
				"s":      "secret",
			}[s.Volume], s.Volume)
		out, err := exec.Command("du", "-s", "--block-size=1", dir).Output()
		if err != nil {
			t.Fatal(err)
		}
		if used := strings.Fields(string(out))[0]; s.Source != "du" || strconv.FormatUint(s.Used, 10) != used ||
			s.Capacity == 0 || s.InodesUsed == 0 {
			t.Errorf("%s: %+v, du says %s", s.Volume, s, used)
		}
		if want := s.Volume == "disk" || s.Volume == "m"; s.Local != want {
			t.Errorf("%s counts as the pod's storage on the disk: %v", s.Volume, s.Local)
		}
	}
	n.release(p)
}

func TestCommonUser(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-46")
	user := func(n int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &n} }
	for _, tc := range []struct {
		name string
		pod  v1.PodSpec
		want int
	}{
		{"no user", v1.PodSpec{Containers: []v1.Container{{}}}, -1},
		{
			"the pod's user",
			v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{RunAsUser: ptr.To[int64](5)},
				Containers:      []v1.Container{{}, {}},
			},
			5,
		},
		{
			"all containers agree",
			v1.PodSpec{
				InitContainers: []v1.Container{{SecurityContext: user(7)}},
				Containers:     []v1.Container{{SecurityContext: user(7)}},
			},
			7,
		},
		{
			"one container differs",
			v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{RunAsUser: ptr.To[int64](5)},
				Containers:      []v1.Container{{}, {SecurityContext: user(7)}},
			},
			-1,
		},
		{
			"ephemeral containers are ignored",
			v1.PodSpec{
				Containers: []v1.Container{{SecurityContext: user(7)}},
				EphemeralContainers: []v1.EphemeralContainer{
					{},
					{EphemeralContainerCommon: v1.EphemeralContainerCommon{SecurityContext: user(8)}},
				},
			},
			7,
		},
		{"one container without a user", v1.PodSpec{Containers: []v1.Container{{SecurityContext: user(7)}, {}}}, -1},
	} {
		got := commonUser(&v1.Pod{Spec: tc.pod})
		if (got == nil) != (tc.want < 0) || got != nil && *got != tc.want {
			t.Errorf("%s: %v, want %d", tc.name, got, tc.want)
		}
	}
}

// hostDirs serves directories of the node as volumes.
type hostDirs struct{}

func (hostDirs) Plugin() string                              { return "example.com/host" }
func (hostDirs) Serves(v *v1.Volume) bool                    { return v.HostPath != nil }
func (hostDirs) Inputs(*v1.Volume) volume.Inputs             { return volume.Inputs{} }
func (hostDirs) Release(context.Context, volume.Place) error { return nil }
func (hostDirs) Prepare(_ context.Context, r volume.Request) (volume.Ready, error) {
	return volume.Ready{Path: r.Volume.HostPath.Path}, nil
}

func TestSubPathOfHostPath(t *testing.T) {
	n := newTestNode(t)
	host := filepath.Join(n.root, "host")
	if err := os.MkdirAll(filepath.Join(host, "data"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(host, "evil")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(host, 0o775); err != nil { // more than the umask permits
		t.Fatal(err)
	}
	p := podWith("u1", v1.Volume{
		Name:         "h",
		VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host}},
	})
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "h", MountPath: "rel", ReadOnly: true, MountPropagation: ptr.To(v1.MountPropagationHostToContainer)},
		{Name: "h", MountPath: "/sub", SubPath: "data"},
		{Name: "h", MountPath: "/expr", SubPathExpr: "$(NAME)/x"},
	}
	n.ready(p)
	ms, err := n.Mounts(context.Background(), p, c,
		func(s string) (string, error) { return strings.ReplaceAll(s, "$(NAME)", "made"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if m := ms[0]; m.HostPath != host || m.ContainerPath != "/rel" || !m.ReadOnly ||
		m.Propagation != v1.MountPropagationHostToContainer {
		t.Errorf("mount = %+v", m)
	}
	if want := filepath.Join(volume.PodDir(n.root, "u1"), "volume-subpaths/h/main/2"); ms[2].HostPath != want {
		t.Errorf("the expanded sub-path is at %s, want %s", ms[2].HostPath, want)
	}
	if err := os.WriteFile(filepath.Join(ms[2].HostPath, "f"), []byte("deep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := n.read(filepath.Join(host, "made/x/f")); got != "deep" {
		t.Errorf("the sub-path leads elsewhere: %q", got)
	}
	for _, made := range []string{"made", "made/x"} {
		if got, want := modeOf(t, filepath.Join(host, made)), modeOf(t, host); got != want {
			t.Errorf("the made directory %s is %s, want its volume's %s", made, got, want)
		}
	}
	if got := modeOf(t, filepath.Join(host, "data")); !strings.HasPrefix(got, "40711 ") {
		t.Errorf("a directory that was there is %s", got)
	}

	for sub, want := range map[string]string{
		"evil":        "leads out of the volume",
		"evil/passwd": "leads out of the volume",
		"/abs":        "must not be an absolute path",
		"a/../b":      "must not contain '..'",
	} {
		bad := v1.Container{Name: "bad", VolumeMounts: []v1.VolumeMount{{Name: "h", MountPath: "/x", SubPath: sub}}}
		if _, err := n.Mounts(context.Background(), p, &bad, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sub-path %s: %v, want %q", sub, err, want)
		}
		byExpr := v1.Container{
			Name:         "bad",
			VolumeMounts: []v1.VolumeMount{{Name: "h", MountPath: "/x", SubPathExpr: "$(X)"}},
		}
		if _, err := n.Mounts(context.Background(), p, &byExpr,
			func(string) (string, error) { return sub, nil }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sub-path expression to %s: %v, want %q", sub, err, want)
		}
	}
	n.mounts(p, &v1.Container{Name: "main", VolumeMounts: c.VolumeMounts[:2]})
	if on := n.mounted(); len(on) != 2 {
		t.Errorf("mounts are %v, want no second one of the same sub-path", on)
	}
	n.release(p)
	if _, err := os.Lstat(filepath.Join(volume.PodDir(n.root, "u1"),
		"volume-subpaths")); !errors.Is(err, fs.ErrNotExist) || len(n.mounted()) != 0 {
		t.Errorf("released, with sub-paths left: %v, %v", err, n.mounted())
	}
	if got := n.read(filepath.Join(host, "made/x/f")); got != "deep" {
		t.Errorf("releasing took the host's data: %q", got)
	}
	parity.Proves(t, "VOL-15")
}

func TestRecursiveReadOnly(t *testing.T) {
	n := newTestNode(t)
	p := podWith("u1", emptyDirVolume("e", ""))
	n.ready(p)
	mode := func(m v1.RecursiveReadOnlyMode, ro bool, prop *v1.MountPropagationMode) (bool, error) {
		ms, err := n.Mounts(context.Background(), p,
			&v1.Container{
				Name: "main",
				VolumeMounts: []v1.VolumeMount{
					{Name: "e", MountPath: "/e", ReadOnly: ro, RecursiveReadOnly: &m, MountPropagation: prop},
				},
			}, nil)
		if err != nil {
			return false, err
		}
		return ms[0].RecursiveReadOnly, nil
	}
	for _, m := range []v1.RecursiveReadOnlyMode{v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible} {
		if on, err := mode(m, true, nil); err != nil || !on {
			t.Errorf("%s = %v, %v", m, on, err)
		}
		if _, err := mode(m, false, nil); err == nil {
			t.Errorf("%s of a writable mount is accepted", m)
		}
		if _, err := mode(m, true, ptr.To(v1.MountPropagationBidirectional)); err == nil {
			t.Errorf("%s of a propagating mount is accepted", m)
		}
	}
	if on, err := mode(v1.RecursiveReadOnlyDisabled, true, nil); err != nil || on {
		t.Errorf("disabled = %v, %v", on, err)
	}
	n.release(p)
}

func TestMemorySize(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-39")
	mem := func(s string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(s)}}
	}
	for _, tc := range []struct {
		name  string
		spec  v1.PodSpec
		limit string
		want  int64
	}{
		{"an unbounded pod may use what the node has", v1.PodSpec{Containers: []v1.Container{{}}}, "", 24581696 << 10},
		{
			"limits of all containers add up",
			v1.PodSpec{Containers: []v1.Container{{Resources: mem("64Mi")}, {Resources: mem("32Mi")}}},
			"",
			96 << 20,
		},
		{
			"one container without a limit lifts it",
			v1.PodSpec{InitContainers: []v1.Container{{}}, Containers: []v1.Container{{Resources: mem("64Mi")}}},
			"",
			24581696 << 10,
		},
		{
			"bounded by the pod-level limit",
			v1.PodSpec{Resources: ptr.To(mem("16Mi")), Containers: []v1.Container{{}}},
			"",
			16 << 20,
		},
		{
			"its sandbox's overhead is the pod's too",
			v1.PodSpec{Overhead: mem("8Mi").Limits, Containers: []v1.Container{{Resources: mem("64Mi")}}},
			"",
			72 << 20,
		},
		{"the volume's limit bounds it", v1.PodSpec{Containers: []v1.Container{{Resources: mem("64Mi")}}}, "8Mi", 8 << 20},
		{"a larger one does not", v1.PodSpec{Containers: []v1.Container{{Resources: mem("64Mi")}}}, "1Gi", 64 << 20},
		{"a limit of zero is none", v1.PodSpec{Containers: []v1.Container{{Resources: mem("64Mi")}}}, "0", 64 << 20},
	} {
		var limit *resource.Quantity
		if tc.limit != "" {
			limit = ptr.To(resource.MustParse(tc.limit))
		}
		if got := memorySize(&v1.Pod{Spec: tc.spec}, limit, allocatable()); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestPageSize(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-39")
	huge := func(names ...v1.ResourceName) *v1.Pod {
		l := v1.ResourceList{}
		for _, n := range names {
			l[n] = resource.MustParse("4Mi")
		}
		return &v1.Pod{
			Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: l, Limits: l}}}},
		}
	}
	// ofPod is a pod with pod-level huge pages; its containers request none.
	ofPod := func(names ...v1.ResourceName) *v1.Pod {
		p := huge()
		p.Spec.Resources = ptr.To(huge(names...).Spec.Containers[0].Resources)
		return p
	}
	for _, tc := range []struct {
		pod    *v1.Pod
		medium v1.StorageMedium
		want   int64
		says   string
	}{
		{huge("hugepages-2Mi"), "HugePages", 2 << 20, "<nil>"},
		{huge("hugepages-2Mi", "hugepages-1Gi"), "HugePages-1Gi", 1 << 30, "<nil>"},
		{huge("hugepages-2Mi", "hugepages-1Gi"), "HugePages", 0,
			"medium: HugePages can't be used if container requests multiple huge page sizes"},
		{huge("hugepages-2Mi"), "HugePages-1Gi", 0,
			"medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"},
		{huge(), "HugePages", 0,
			"medium HugePages: hugePages storage requested, but there is no resource request for huge pages"},
		{ofPod("hugepages-2Mi"), "HugePages", 2 << 20, "<nil>"},
		{ofPod("hugepages-2Mi"), "HugePages-2Mi", 2 << 20, "<nil>"},
		{ofPod("hugepages-1Gi", "hugepages-2Mi"), "HugePages", 0,
			"medium: HugePages can't be used if container requests multiple huge page sizes"},
		{huge("hugepages-2Mi"), "HugePages-2048Ki", 2 << 20, "<nil>"},
		{huge("hugepages-2Mi", "hugepages-2048Ki"), "HugePages", 2 << 20, "<nil>"},
	} {
		if got, err := pageSize(tc.pod, tc.medium); got != tc.want || fmt.Sprint(err) != tc.says {
			t.Errorf("%s: %d, %v, want %d", tc.medium, got, err, tc.want)
		}
	}
}

func TestImageVolume(t *testing.T) {
	v := v1.Volume{Name: "i", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r"}}}
	r := volume.Request{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, Volume: &v}
	if _, err := (image{}).Prepare(context.Background(), r); err == nil {
		t.Error("an image volume is ready although images are not served")
	}
	k := image{Config{Image: func(_ context.Context, _ *v1.Pod, v *v1.Volume) (string, error) {
		return "sha256:" + v.Image.Reference, nil
	}}}
	if got, err := k.Prepare(context.Background(), r); err != nil || got.Image != "sha256:r" || !got.ReadOnly ||
		got.Path != "" {
		t.Errorf("Prepare = %+v, %v", got, err)
	}
}
