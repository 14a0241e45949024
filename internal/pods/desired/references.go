package desired

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson/internal/pods/pod"
)

// apiReferences finds where a static pod refers to objects of the API server.
// Nobody has authorised a file on a node to read them.
func apiReferences(p *v1.Pod) (errs field.ErrorList) {
	refuse := func(at *field.Path, what string) {
		errs = append(errs, field.Forbidden(at, "a static pod may not refer to "+what))
	}
	at, s := field.NewPath("spec"), &p.Spec
	if s.ServiceAccountName != "" {
		refuse(at.Child("serviceAccountName"), "a service account")
	}
	if s.DeprecatedServiceAccount != "" {
		refuse(at.Child("serviceAccount"), "a service account")
	}
	if len(s.ImagePullSecrets) > 0 {
		refuse(at.Child("imagePullSecrets"), "secrets")
	}
	if len(s.ResourceClaims) > 0 {
		refuse(at.Child("resourceClaims"), "resource claims")
	}
	for kind, c := range pod.Containers(p) {
		list := "containers"
		if kind != pod.Regular {
			list = "initContainers"
		}
		containerReferences(c, at.Child(list).Key(c.Name), refuse)
	}
	for i := range s.Volumes {
		volumeReferences(&s.Volumes[i].VolumeSource, at.Child("volumes").Index(i), refuse)
	}
	return errs
}

func containerReferences(c *v1.Container, at *field.Path, refuse func(*field.Path, string)) {
	for i, from := range c.EnvFrom {
		at := at.Child("envFrom").Index(i)
		if from.ConfigMapRef != nil {
			refuse(at.Child("configMapRef"), "a ConfigMap")
		}
		if from.SecretRef != nil {
			refuse(at.Child("secretRef"), "a secret")
		}
	}
	for i, e := range c.Env {
		at := at.Child("env").Index(i).Child("valueFrom")
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			refuse(at.Child("configMapKeyRef"), "a ConfigMap")
		}
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			refuse(at.Child("secretKeyRef"), "a secret")
		}
	}
}

func volumeReferences(v *v1.VolumeSource, at *field.Path, refuse func(*field.Path, string)) {
	for _, ref := range []struct {
		name, what string
		set        bool
	}{
		{"secret", "a secret", v.Secret != nil},
		{"configMap", "a ConfigMap", v.ConfigMap != nil},
		{"persistentVolumeClaim", "a persistent volume claim", v.PersistentVolumeClaim != nil},
		{"ephemeral", "a persistent volume claim", v.Ephemeral != nil},
		{"csi", "a CSI driver", v.CSI != nil},
		{"iscsi.secretRef", "a secret", v.ISCSI != nil && v.ISCSI.SecretRef != nil},
		{"flexVolume.secretRef", "a secret", v.FlexVolume != nil && v.FlexVolume.SecretRef != nil},
		{"rbd.secretRef", "a secret", v.RBD != nil && v.RBD.SecretRef != nil},
		{"cephfs.secretRef", "a secret", v.CephFS != nil && v.CephFS.SecretRef != nil},
		{"cinder.secretRef", "a secret", v.Cinder != nil && v.Cinder.SecretRef != nil},
		{"azureFile", "a secret", v.AzureFile != nil},
		{"scaleIO", "a secret", v.ScaleIO != nil},
		{"storageos.secretRef", "a secret", v.StorageOS != nil && v.StorageOS.SecretRef != nil},
		{"glusterfs", "endpoints", v.Glusterfs != nil},
	} {
		if ref.set {
			refuse(at.Child(ref.name), ref.what)
		}
	}
	if v.Projected == nil {
		return
	}
	for i, source := range v.Projected.Sources {
		at := at.Child("projected", "sources").Index(i)
		for _, ref := range []struct {
			name, what string
			set        bool
		}{
			{"secret", "a secret", source.Secret != nil},
			{"configMap", "a ConfigMap", source.ConfigMap != nil},
			{"serviceAccountToken", "a service account", source.ServiceAccountToken != nil},
			{"clusterTrustBundle", "a cluster trust bundle", source.ClusterTrustBundle != nil},
			{"podCertificate", "a pod certificate", source.PodCertificate != nil},
		} {
			if ref.set {
				refuse(at.Child(ref.name), ref.what)
			}
		}
	}
}
