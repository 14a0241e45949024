package differ

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// volumes generates volumes of the kinds that need only the node and the pod's objects.
func (d *draw) volumes() (list []corev1.Volume) {
	for i := range d.IntN(4) {
		list = append(list, corev1.Volume{Name: fmt.Sprintf("vol%d", i), VolumeSource: d.volume()})
	}
	return list
}

func (d *draw) volume() corev1.VolumeSource {
	fields := []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{
			Path:     "deep/annotations",
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"},
			Mode:     maybe(d, 2, int32(0o400)),
		},
		{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}
	config, secret := corev1.LocalObjectReference{Name: d.able.config}, d.able.secret
	items := []corev1.KeyToPath{{Key: "one", Path: "renamed/one", Mode: maybe(d, 2, int32(0o640))}}
	n := 7
	if d.able.config == "" {
		n = 4
	}
	switch d.IntN(n) {
	case 0:
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	case 1:
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium:    corev1.StorageMediumMemory,
			SizeLimit: maybe(d, 2, resource.MustParse("1Mi")),
		}}
	case 2:
		return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items:       fields,
			DefaultMode: maybe(d, 2, int32(0o600)),
		}}
	case 3:
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: "/etc",
			Type: maybe(d, 2, corev1.HostPathDirectory, corev1.HostPathFile),
		}}
	case 4:
		v := &corev1.ConfigMapVolumeSource{LocalObjectReference: config, DefaultMode: maybe(d, 2, int32(0o444))}
		if d.one(2) {
			v.Items = items
		}
		if d.one(8) {
			v.Name, v.Optional = "nothing", new(true)
		}
		return corev1.VolumeSource{ConfigMap: v}
	case 5:
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName:  secret,
			DefaultMode: maybe(d, 2, int32(0o400)),
		}}
	}
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: maybe(d, 2, int32(0o440)),
		Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: config, Items: items}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields}},
		}}}
}

// mounts mounts most volumes, some of them in others.
func (d *draw) mounts(c *corev1.Container) {
	at := ""
	for _, v := range d.pod.Spec.Volumes {
		if d.one(5) {
			continue
		}
		m := corev1.VolumeMount{Name: v.Name, MountPath: at + "/" + v.Name, ReadOnly: d.one(4)}
		if v.EmptyDir != nil && d.one(4) {
			m.SubPath = d.of("sub", "sub/deep")
		}
		if m.SubPath == "" && v.EmptyDir != nil && d.one(6) && c.Env != nil {
			m.SubPathExpr = "expr/$(ONE)"
		}
		if d.one(5) {
			if sub := d.subPathOf(v); sub != "" {
				m.SubPath = sub
			}
		}
		if m.ReadOnly && d.one(3) {
			m.RecursiveReadOnly = new(corev1.RecursiveReadOnlyIfPossible)
		}
		if d.one(3) && (m.SubPath == "" || v.EmptyDir != nil) {
			at = m.MountPath
		}
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
}
