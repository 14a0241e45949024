package manifest

import (
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateClaimTemplate checks the claim of an ephemeral volume.
func validateClaimTemplate(t *v1.PersistentVolumeClaimTemplate, at *field.Path) field.ErrorList {
	meta := at.Child("metadata")
	errs := apivalidation.ValidateAnnotations(t.Annotations, meta.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(t.Labels, meta.Child("labels"))...)
	rest := t.ObjectMeta
	rest.Annotations, rest.Labels = nil, nil
	if !reflect.DeepEqual(rest, metav1.ObjectMeta{}) {
		errs = append(errs, field.Forbidden(meta, "only labels and annotations can be set"))
	}
	return append(errs, validateClaim(&t.Spec, at.Child("spec"))...)
}

var accessModes = []v1.PersistentVolumeAccessMode{
	v1.ReadOnlyMany,
	v1.ReadWriteMany,
	v1.ReadWriteOnce,
	v1.ReadWriteOncePod,
}

func validateClaim(c *v1.PersistentVolumeClaimSpec, at *field.Path) (errs field.ErrorList) {
	if len(c.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	oncePod, other := false, false
	for _, mode := range c.AccessModes {
		known := slices.Contains(accessModes, mode)
		if !known {
			errs = append(errs, field.NotSupported(at.Child("accessModes"), mode, accessModes))
		}
		oncePod = oncePod || mode == v1.ReadWriteOncePod
		other = other || known && mode != v1.ReadWriteOncePod
	}
	if oncePod && other {
		errs = append(errs,
			field.Forbidden(at.Child("accessModes"), "may not use ReadWriteOncePod with other access modes"))
	}
	if c.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(c.Selector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	storage := at.Child("resources").Key(string(v1.ResourceStorage))
	if q, ok := c.Resources.Requests[v1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, ""))
	} else if q.Sign() <= 0 {
		errs = append(errs, field.Invalid(storage, q.String(), "must be greater than zero"))
	}
	for _, class := range []struct {
		name  string
		value *string
	}{
		{"storageClassName", c.StorageClassName},
		{"volumeAttributesClassName", c.VolumeAttributesClassName},
	} {
		if class.value != nil && *class.value != "" {
			errs = append(errs, invalid(at.Child(class.name), *class.value,
				apivalidation.NameIsDNSSubdomain(*class.value, false))...)
		}
	}
	modes := []v1.PersistentVolumeMode{v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem}
	if c.VolumeMode != nil && !slices.Contains(modes, *c.VolumeMode) {
		errs = append(errs, field.NotSupported(at.Child("volumeMode"), *c.VolumeMode, modes))
	}
	return append(errs, validateDataSources(c, at)...)
}

// validateDataSources checks the data sources of a claim, which two fields name.
func validateDataSources(c *v1.PersistentVolumeClaimSpec, at *field.Path) (errs field.ErrorList) {
	if s := c.DataSource; s != nil {
		errs = append(errs, validateDataSource(s.APIGroup, s.Kind, s.Name, at.Child("dataSource"))...)
	}
	ref := c.DataSourceRef
	if ref == nil {
		return errs
	}
	errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, at.Child("dataSourceRef"))...)
	foreign := ref.Namespace != nil && *ref.Namespace != ""
	if foreign {
		errs = append(errs, invalid(at.Child("dataSourceRef", "namespace"), *ref.Namespace,
			apivalidation.ValidateNamespaceName(*ref.Namespace, false))...)
	}
	same := func(s *v1.TypedLocalObjectReference) bool {
		return reflect.DeepEqual(s.APIGroup, ref.APIGroup) && s.Kind == ref.Kind && s.Name == ref.Name
	}
	switch {
	case c.DataSource == nil:
	case foreign:
		errs = append(errs,
			field.Invalid(at, "dataSource", "may not be specified when dataSourceRef.namespace is specified"))
	case !same(c.DataSource):
		errs = append(errs, field.Invalid(at, "dataSource", "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(group *string, kind, name string, at *field.Path) field.ErrorList {
	errs := append(required(at.Child("name"), name), required(at.Child("kind"), kind)...)
	switch {
	case group != nil && *group != "":
		errs = append(errs, invalid(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	case kind != "PersistentVolumeClaim":
		errs = append(errs,
			field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}
