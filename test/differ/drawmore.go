package differ

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// drawWhole generates a user namespace and pod-level resources.
func (d *draw) drawWhole() {
	s := &d.pod.Spec
	if d.one(10) && !s.HostNetwork && !s.HostPID && !s.HostIPC {
		s.HostUsers = new(false)
	}
	if d.one(8) {
		s.Resources = &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": quantity("50m"), "memory": quantity("64Mi")},
		}
		if d.one(2) {
			s.Resources.Limits = corev1.ResourceList{"cpu": quantity("300m"), "memory": quantity("256Mi")}
		}
	}
}

// hugePages makes a container request huge pages that no node has.
func (d *draw) hugePages(r *corev1.ResourceRequirements) {
	if !d.one(60) || len(r.Requests) == 0 {
		return
	}
	r.Requests["hugepages-2Mi"] = quantity("2Mi")
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	r.Limits["hugepages-2Mi"] = quantity("2Mi")
}

// fileVariable generates an environment variable from a file (fileKeyRef) that an init container writes; the file may
// lack the key.
func (d *draw) fileVariable() []corev1.EnvVar {
	for _, c := range d.pod.Spec.InitContainers {
		for _, v := range written(d.pod, c) {
			if !d.one(3) {
				continue
			}
			key := d.of("ONE", "NONE")
			return []corev1.EnvVar{{Name: "FROM_FILE",
				ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
					VolumeName: v, Path: envFile, Key: key, Optional: new(key == "NONE" || d.one(2)),
				}}}}
		}
	}
	return nil
}

// envFile is the file that init containers write into each emptyDir volume that they mount as a whole.
const envFile = "env"

// written are the names of the volumes into which a container writes envFile.
func written(p *corev1.Pod, c corev1.Container) (list []string) {
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" || m.ReadOnly {
			continue
		}
		if slices.ContainsFunc(p.Spec.Volumes,
			func(v corev1.Volume) bool { return v.Name == m.Name && v.EmptyDir != nil }) {
			list = append(list, m.Name)
		}
	}
	return list
}

// subPathOf generates the subPath of a file of a ConfigMap or a Secret.
func (d *draw) subPathOf(v corev1.Volume) string {
	switch {
	case v.ConfigMap != nil && v.ConfigMap.Items != nil && v.ConfigMap.Optional == nil:
		return d.of("renamed/one", "renamed")
	case v.ConfigMap != nil && v.ConfigMap.Optional == nil:
		return d.of("one", "text")
	case v.Secret != nil:
		return "user"
	case v.DownwardAPI != nil:
		return d.of("labels", "deep/annotations")
	}
	return ""
}

// late makes objects of the pod be created after the pod.
func (d *draw) late() {
	objects := d.life.Objects
	if len(objects) == 0 || !d.one(6) {
		return
	}
	i := d.IntN(len(objects))
	late := objects[i]
	d.life.Objects = append(objects[:i:i], objects[i+1:]...)
	a := &d.life.Acts[0]
	a.Steps = append([]Step{a.Steps[0], {Verb: putObject, Object: &late}}, a.Steps[1:]...)
}
