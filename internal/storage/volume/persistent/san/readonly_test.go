package san

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/parity"
)

// A disk is read-only if the claim reference or the inline volume in the pod is. readOnly in the
// source of a PersistentVolume is ignored.
func TestReadOnlyDisks(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-26")
	lun := int32(1)
	inline := func(readOnly bool) persistent.Spec {
		return persistent.Spec{
			Name: "v",
			Inline: &v1.Volume{VolumeSource: v1.VolumeSource{
				ISCSI: &v1.ISCSIVolumeSource{
					TargetPortal: "192.0.2.1",
					IQN:          "iqn.2001-04.com.example:a",
					ReadOnly:     readOnly,
				},
				FC: &v1.FCVolumeSource{TargetWWNs: []string{"500a0982991b8dc5"}, Lun: &lun, ReadOnly: readOnly},
			}},
		}
	}
	claimed := func(pod, source bool) persistent.Spec {
		pv := &v1.PersistentVolume{}
		pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{
			TargetPortal: "192.0.2.1",
			IQN:          "iqn.2001-04.com.example:a",
			ReadOnly:     source,
		}
		pv.Spec.FC = &v1.FCVolumeSource{TargetWWNs: []string{"500a0982991b8dc5"}, Lun: &lun, ReadOnly: source}
		return persistent.Spec{Name: "v", PV: pv, ReadOnly: pod}
	}
	for _, tc := range []struct {
		name string
		spec persistent.Spec
		want bool
	}{
		{"named by the pod", inline(false), false},
		{"named by the pod as read-only", inline(true), true},
		{"claimed", claimed(false, false), false},
		{"claimed as read-only", claimed(true, false), true},
		{"readOnly of the source", claimed(false, true), false},
	} {
		for kind, describe := range map[string]func(persistent.Spec) (*record, error){
			"iSCSI":         iscsi{}.describe,
			"Fibre Channel": fc{}.describe,
		} {
			if r, err := describe(tc.spec); err != nil || r.readOnly != tc.want {
				t.Errorf("a disk of %s, %s: %+v, %v; want read-only: %v", kind, tc.name, r, err, tc.want)
			}
		}
	}
}
