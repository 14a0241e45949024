package volume

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// needed returns the volumes that a container mounts, in the order of the specification. Others are
// not prepared.
func needed(p *v1.Pod) []*v1.Volume {
	used := map[string]bool{}
	for _, c := range pod.Containers(p) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = true
		}
	}
	var out []*v1.Volume
	for i := range p.Spec.Volumes {
		if used[p.Spec.Volumes[i].Name] {
			out = append(out, &p.Spec.Volumes[i])
		}
	}
	return out
}

// shownChanged reports whether fields have changed that volumes can contain: labels, annotations,
// or resources, which change the generation.
func shownChanged(old, now *v1.Pod) bool {
	return old != now && (old.Generation != now.Generation ||
		!maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations))
}

// mountsChanged reports whether the mounts of containers may have changed: only ephemeral
// containers can be added to a pod.
func mountsChanged(old, now *v1.Pod) bool {
	return len(old.Spec.EphemeralContainers) != len(now.Spec.EphemeralContainers)
}
