package objectcache

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Kind is the kind of an object, as spelled in messages.
type Kind string

// The kinds.
const (
	ConfigMap Kind = "configmap"
	Secret    Kind = "secret"
)

// Ref identifies an object.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

func (r Ref) String() string { return string(r.Kind) + " " + r.Namespace + "/" + r.Name }

// RefsOf returns all objects that the pod's spec refers to by name: in volumes, environments of all containers, and
// image pull secrets.
func RefsOf(p *v1.Pod) map[Ref]struct{} {
	refs := map[Ref]struct{}{}
	add := func(kind Kind, name string) {
		if name != "" {
			refs[Ref{kind, p.Namespace, name}] = struct{}{}
		}
	}
	for _, s := range p.Spec.ImagePullSecrets {
		add(Secret, s.Name)
	}
	for _, c := range pod.Containers(p) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add(ConfigMap, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(Secret, from.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if e.ValueFrom.ConfigMapKeyRef != nil {
				add(ConfigMap, e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom.SecretKeyRef != nil {
				add(Secret, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for i := range p.Spec.Volumes {
		volumeRefs(&p.Spec.Volumes[i].VolumeSource, add)
	}
	return refs
}

func volumeRefs(v *v1.VolumeSource, add func(Kind, string)) {
	local := func(r *v1.LocalObjectReference) {
		if r != nil {
			add(Secret, r.Name)
		}
	}
	switch {
	case v.ConfigMap != nil:
		add(ConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		add(Secret, v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(ConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(Secret, s.Secret.Name)
			}
		}
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	case v.AzureFile != nil:
		add(Secret, v.AzureFile.SecretName)
	}
}
