package hostpath

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/parity"
)

// A path without a type is used as it is, even if it does not exist.
func TestPublish(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-42")
	missing := filepath.Join(t.TempDir(), "missing")
	p := New(mount.NewGuard())
	for _, tc := range []struct {
		name string
		src  v1.HostPathVolumeSource
		want string // the error; empty for none
	}{
		{"no type", v1.HostPathVolumeSource{Path: missing}, ""},
		{"an empty type", v1.HostPathVolumeSource{Path: missing, Type: ptr.To(v1.HostPathType(""))}, ""},
		{
			"a type",
			v1.HostPathVolumeSource{Path: missing, Type: ptr.To(v1.HostPathType("Directory"))},
			"hostPath type check failed: " + missing + " is not a directory",
		},
		{
			"a path that leads up",
			v1.HostPathVolumeSource{Path: "/a/../b"},
			"invalid HostPath `/a/../b`: must not contain '..'",
		},
		{"two dots within a name", v1.HostPathVolumeSource{Path: "/a..b"}, ""},
	} {
		for _, s := range []persistent.Spec{
			{Name: "v", Inline: &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &tc.src}}},
			{
				Name:     "v",
				ReadOnly: true,
				PV: &v1.PersistentVolume{
					Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &tc.src}},
				},
			},
		} {
			if !p.Serves(s) {
				t.Fatal("the volume is not served")
			}
			out, err := p.Publish(t.Context(), persistent.Request{Spec: s, Pod: &v1.Pod{}})
			if tc.want != "" {
				if err == nil || err.Error() != tc.want {
					t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
				}
				continue
			}
			if err != nil || out.Path != tc.src.Path || out.ReadOnly != s.ReadOnly || out.Relabel {
				t.Errorf("%s: %+v, %v", tc.name, out, err)
			}
		}
	}
}

// A directory of the node keeps its group, whatever the pod's fsGroup.
func TestFSGroupIsNotApplied(t *testing.T) {
	parity.ProvesPart(t, 8, "VOL-17")
	dir := t.TempDir()
	before := statOf(t, dir)
	pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}}}
	s := persistent.Spec{
		Name:   "v",
		Inline: &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}},
	}
	if _, err := New(mount.NewGuard()).Publish(t.Context(), persistent.Request{Spec: s, Pod: pod}); err != nil {
		t.Fatal(err)
	}
	if after := statOf(t, dir); after.Gid != before.Gid || after.Mode != before.Mode {
		t.Errorf("the directory was %o of group %d and is %o of group %d", before.Mode, before.Gid, after.Mode,
			after.Gid)
	}
}

func statOf(t *testing.T, path string) (st unix.Stat_t) {
	t.Helper()
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}
