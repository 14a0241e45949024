package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// ShowsRecursiveReadOnly reports whether the pod's last status shows a mount as recursively read-only that asks for it.
func ShowsRecursiveReadOnly(p *v1.Pod) bool {
	for _, c := range pod.Containers(p) {
		for _, m := range c.VolumeMounts {
			asks := m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled
			if asks && shownRecursive(p, c.Name, m.MountPath) {
				return true
			}
		}
	}
	return false
}

func shownRecursive(p *v1.Pod, container, path string) bool {
	st := &p.Status
	all := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses)
	for _, c := range all {
		for _, m := range c.VolumeMounts {
			if c.Name == container && m.MountPath == path {
				return m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
			}
		}
	}
	return false
}
