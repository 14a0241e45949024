package usage

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/resources/stats"
	"keelson/internal/storage/volume"
)

// Volumes returns the last measurements of the pod's volumes.
func Volumes(v *volume.Manager, uid types.UID) []stats.Volume {
	have := v.Stats(uid)
	out := make([]stats.Volume, len(have))
	for i, f := range have {
		out[i] = stats.Volume{
			Name:       f.Volume,
			Claim:      f.Claim,
			At:         f.At,
			Ephemeral:  f.Local,
			Capacity:   f.Capacity,
			Available:  f.Available,
			Used:       f.Used,
			Inodes:     f.Inodes,
			InodesFree: f.InodesFree,
			InodesUsed: f.InodesUsed,
		}
		if f.Health != nil {
			out[i].Abnormal = &f.Health.Abnormal
		}
	}
	return out
}

// Pods returns the pods that the runtime has, with their specification if a source has them.
func Pods(d *desired.Store, o *observed.Cache) []stats.Pod {
	var out []stats.Pod
	for _, uid := range o.UIDs() {
		have, ok := o.Get(uid)
		if !ok {
			continue
		}
		spec, _, _ := d.Get(uid)
		out = append(out, stats.Pod{Spec: spec, Have: have})
	}
	return out
}

// LocalVolumes returns, for each volume of a pod, whether it uses the node's disk.
func LocalVolumes(v *volume.Manager, uid types.UID) map[string]bool {
	out := map[string]bool{}
	for _, f := range v.Stats(uid) {
		out[f.Volume] = f.Local
	}
	return out
}
