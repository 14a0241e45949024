package volume

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// needed are the volumes of the specification that a container mounts, in the
// specification's order. The others are never made.
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

// shownChanged reports whether anything of the pod that a volume can show
// differs: labels, annotations, or, told by the generation, resources.
func shownChanged(old, now *v1.Pod) bool {
	return old != now && (old.Generation != now.Generation ||
		!maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations))
}

// mountsChanged reports whether containers may mount volumes elsewhere than before:
// nothing but an ephemeral container can be added to a pod.
func mountsChanged(old, now *v1.Pod) bool {
	return len(old.Spec.EphemeralContainers) != len(now.Spec.EphemeralContainers)
}
