package manifest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// apiReferences finds references of a static pod to objects of the API server. A manifest
// on a node is not authorised to read them.
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
	if slices.ContainsFunc(s.ImagePullSecrets, func(r v1.LocalObjectReference) bool { return r.Name != "" }) {
		refuse(at.Child("imagePullSecrets"), "secrets")
	}
	if len(s.ResourceClaims) > 0 {
		refuse(at.Child("resourceClaims"), "resource claims")
	}
	eachContainer(s, at, func(c *v1.Container, at *field.Path) {
		containerReferences(c, at, refuse)
	})
	for i := range s.Volumes {
		volumeReferences(&s.Volumes[i].VolumeSource, at.Child("volumes").Index(i), refuse)
	}
	return errs
}

// neverInStatic finds the references to objects of the API server that no static
// pod may have, even where it may have others.
func neverInStatic(p *v1.Pod) (errs field.ErrorList) {
	at, s := field.NewPath("spec"), &p.Spec
	if len(s.ResourceClaims) > 0 {
		errs = append(errs, field.Forbidden(at.Child("resourceClaims"), "static pods may not use ResourceClaims"))
	}
	for i, v := range s.Volumes {
		if v.Projected == nil {
			continue
		}
		for j, source := range v.Projected.Sources {
			if source.ClusterTrustBundle != nil {
				errs = append(errs,
					field.Forbidden(
						at.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("clusterTrustBundle"),
						"static pods may not use ClusterTrustBundle projected volume sources"))
			}
		}
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

// named reports whether a reference names an object.
func named(r *v1.LocalObjectReference) bool { return r != nil && r.Name != "" }

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
		{"iscsi.secretRef", "a secret", v.ISCSI != nil && named(v.ISCSI.SecretRef)},
		{"flexVolume.secretRef", "a secret", v.FlexVolume != nil && named(v.FlexVolume.SecretRef)},
		{"rbd.secretRef", "a secret", v.RBD != nil && named(v.RBD.SecretRef)},
		{"cephfs.secretRef", "a secret", v.CephFS != nil && named(v.CephFS.SecretRef)},
		{"cinder.secretRef", "a secret", v.Cinder != nil && named(v.Cinder.SecretRef)},
		{"azureFile", "a secret", v.AzureFile != nil},
		{"scaleIO.secretRef", "a secret", v.ScaleIO != nil && named(v.ScaleIO.SecretRef)},
		{"storageos.secretRef", "a secret", v.StorageOS != nil && named(v.StorageOS.SecretRef)},
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
		if source == (v1.VolumeProjection{}) {
			refuse(at, "an unknown projected volume source")
		}
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
