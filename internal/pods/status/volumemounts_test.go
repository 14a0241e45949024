package status

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestVolumeMountStatus(t *testing.T) {
	for _, tc := range []struct {
		mount   v1.VolumeMount
		capable bool
		want    string
	}{
		{v1.VolumeMount{}, true, "rw"},
		{v1.VolumeMount{ReadOnly: true}, true, "ro Disabled"},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyDisabled)}, true, "ro Disabled"},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}, true, "ro Enabled"},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}, false, "ro Disabled"},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)}, true, "ro Enabled"},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)}, false, "ro Disabled"},
		{v1.VolumeMount{
			ReadOnly:          true,
			RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled),
			MountPropagation:  ptr.To(v1.MountPropagationHostToContainer),
		}, true, "ro Disabled"},
	} {
		n := Node{RecursiveReadOnly: func(*v1.Pod) bool { return tc.capable }}
		tc.mount.Name, tc.mount.MountPath = "v", "/v"
		got := volumeMounts(n, &v1.Pod{}, &v1.Container{VolumeMounts: []v1.VolumeMount{tc.mount}})[0]
		shown := "rw"
		if got.ReadOnly {
			shown = fmt.Sprint("ro ", *got.RecursiveReadOnly)
		}
		if shown != tc.want || got.Name != "v" || got.MountPath != "/v" {
			t.Errorf("%+v on a runtime that can %v is shown as %s, want %s", tc.mount, tc.capable, shown, tc.want)
		}
	}
}
