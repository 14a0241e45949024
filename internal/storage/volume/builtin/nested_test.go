package builtin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/volume"
	"keelson/test/kit/await"
)

func TestNestedMountPoints(t *testing.T) {
	mounts := func(at ...string) []v1.VolumeMount { // of the volume, or as name=path of another one
		var out []v1.VolumeMount
		for _, a := range at {
			name, path, other := strings.Cut(a, "=")
			if !other {
				name, path = "v", a
			}
			out = append(out, v1.VolumeMount{Name: name, MountPath: path})
		}
		return out
	}
	for _, tc := range []struct {
		name       string
		containers [][]v1.VolumeMount
		want       []string
		wrong      string // the error
	}{
		{name: "no other volume", containers: [][]v1.VolumeMount{mounts("/dir")}},
		{name: "another volume beside it", containers: [][]v1.VolumeMount{mounts("/dir", "o=/dir2", "o=/", "o=/dir-x")}},
		{name: "one below it", containers: [][]v1.VolumeMount{mounts("/dir", "o=/dir/nested")}, want: []string{"nested"}},
		{
			name:       "independent of the order",
			containers: [][]v1.VolumeMount{mounts("o=/dir/nested", "/dir/")},
			want:       []string{"nested"},
		},
		{name: "one deep below it", containers: [][]v1.VolumeMount{mounts("/dir", "o=/dir/a/b")}, want: []string{"a/b"}},
		{
			name:       "one below another one",
			containers: [][]v1.VolumeMount{mounts("/dir", "o=/dir/nested", "p=/dir/nested/double")},
			want:       []string{"nested"},
		},
		{
			name: "names that sort between",
			containers: [][]v1.VolumeMount{
				mounts("/dir", "o=/dir/nested", "o=/dir/nested-vol", "o=/dir/nested.vol", "p=/dir/nested/double",
					"p=/dir/nested2"),
			},
			want: []string{"nested", "nested-vol", "nested.vol", "nested2"},
		},
		{
			name:       "the volume below itself",
			containers: [][]v1.VolumeMount{mounts("/dir", "/dir/self")},
			want:       []string{"self"},
		},
		{
			name:       "in two places",
			containers: [][]v1.VolumeMount{mounts("/one", "/two", "o=/one/x", "o=/two/y")},
			want:       []string{"x", "y"},
		},
		{
			name: "containers count by themselves",
			containers: [][]v1.VolumeMount{
				mounts("/dir"),
				mounts("o=/dir/nested"),
				mounts("/dir", "o=/dir/x"),
				mounts("/dir", "o=/dir/x"),
			},
			want: []string{"x"},
		},
		{
			name:       "a volume that leads out",
			containers: [][]v1.VolumeMount{mounts("../dir", "o=../dir/x")},
			wrong:      "invalid container mount point ../dir",
		},
	} {
		p := &v1.Pod{}
		for _, m := range tc.containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{VolumeMounts: m})
		}
		got, err := nestedMountPoints(p, "v")
		if !slices.Equal(got, tc.want) || (err == nil) != (tc.wrong == "") || err != nil && err.Error() != tc.wrong {
			t.Errorf("%s: %v, %v, want %v %s", tc.name, got, err, tc.want, tc.wrong)
		}
	}
}

// A read-only volume has directories as mount points for nested volumes. They survive updates of
// its files and have the pod's fsGroup. A directory hides a file of the same name.
func TestNestedMountPointDirectories(t *testing.T) {
	n := newTestNode(t)
	n.objects.putMap("conf", map[string]string{"color": "blue", "hidden": "x"})
	n.objects.putSecret("key", map[string][]byte{"pin": []byte("1234")})
	labels := []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	p := podWith("u1", configMapVolume("conf", v1.ConfigMapVolumeSource{}),
		v1.Volume{Name: "key", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}},
		v1.Volume{
			Name:         "labels",
			VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: labels}},
		},
		v1.Volume{
			Name: "both",
			VolumeSource: v1.VolumeSource{
				Projected: &v1.ProjectedVolumeSource{
					Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: labels}}},
				},
			},
		},
		emptyDirVolume("free", ""))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](3000)}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = nil
	for _, name := range []string{"conf", "key", "labels", "both"} {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{
			Name:      name,
			MountPath: "/" + name,
		}, v1.VolumeMount{Name: "free", MountPath: "/" + name + "/a/b"})
	}
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "free", MountPath: "/conf/hidden"})
	n.ready(p)
	dirs := map[string]string{
		"conf":   n.dir(p, "configmap", "conf"),
		"key":    n.dir(p, "secret", "key"),
		"labels": n.dir(p, "downward-api", "labels"),
		"both":   n.dir(p, "projected", "both"),
	}
	for name, dir := range dirs {
		for _, at := range []string{"a", "a/b"} {
			if got := modeOf(t, filepath.Join(dir, at)); got != "42755 0:3000" {
				t.Errorf("%s of %s is %s, want 42755 0:3000", at, name, got)
			}
		}
	}
	if got := modeOf(t, filepath.Join(dirs["conf"], "hidden")); got != "42755 0:3000" {
		t.Errorf("the directory in place of a file is %s, want 42755 0:3000", got)
	}
	was, err := os.Stat(filepath.Join(dirs["conf"], "a/b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, color := range []string{"red", "green"} {
		n.objects.putMap("conf", map[string]string{"color": color, "a": "late", "hidden": "y"})
		n.ObjectChanged([]types.UID{p.UID}, volume.ConfigMap, "conf")
		await.True(t, "the change", func() bool { return n.read(filepath.Join(dirs["conf"], "color")) == color })
		if is, err := os.Stat(filepath.Join(dirs["conf"], "a/b")); err != nil || !os.SameFile(is, was) {
			t.Errorf("a mount point is another one after a change: %v", err)
		}
		n.restart()
		n.ready(p)
	}

	// An ephemeral container has another mount.
	later := p.DeepCopy()
	later.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name:         "debug",
		VolumeMounts: []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}, {Name: "free", MountPath: "/conf/late"}},
	}}}
	n.Want(later)
	await.True(t, "a mount point for it", func() bool {
		_, err := os.Stat(filepath.Join(dirs["conf"], "late"))
		return !errors.Is(err, os.ErrNotExist)
	})
	n.release(p)
}

// A symlink in the volume cannot redirect the creation of mount points.
func TestNestedMountPointsStayInVolume(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := makeMountPoints(dir, []string{"a/b"}); err == nil ||
		!strings.HasPrefix(err.Error(), "unable to create nested volume mountpoints: ") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("made outside: %v, %v", left, err)
	}
}
