package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// envFields are the pod's fields that an environment variable may refer to.
var envFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func validateEnv(env []v1.EnvVar, volumes map[string]*v1.Volume, at *field.Path) (errs field.ErrorList) {
	for i, e := range env {
		at := at.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom == nil {
			continue
		}
		at = at.Child("valueFrom")
		if e.Value != "" {
			errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
		}
		errs = append(errs, validateValueFrom(e.ValueFrom, volumes, at)...)
	}
	return errs
}

func validateValueFrom(from *v1.EnvVarSource, volumes map[string]*v1.Volume, at *field.Path) (errs field.ErrorList) {
	switch n := count(from.FieldRef != nil, from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil,
		from.SecretKeyRef != nil, from.FileKeyRef != nil); {
	case n == 0:
		errs = append(errs, field.Invalid(at, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case n > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	if from.FieldRef != nil {
		errs = append(errs, validateFieldRef(from.FieldRef, envFields, at.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		errs = append(errs, validateResourceRef(from.ResourceFieldRef, false, at.Child("resourceFieldRef"))...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		errs = append(errs, validateKeyRef(r.Name, r.Key, at.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		errs = append(errs, validateKeyRef(r.Name, r.Key, at.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		errs = append(errs, validateFileKeyRef(from.FileKeyRef, volumes, at.Child("fileKeyRef"))...)
	}
	return errs
}

// validateKeyRef checks a reference to one key of a ConfigMap or Secret.
func validateKeyRef(name, key string, at *field.Path) field.ErrorList {
	errs := invalid(at.Child("name"), name, apivalidation.NameIsDNSSubdomain(name, false))
	if key == "" {
		return append(errs, field.Required(at.Child("key"), ""))
	}
	return append(errs, invalid(at.Child("key"), key, validation.IsConfigMapKey(key))...)
}

// validateFileKeyRef checks a reference to a key of a file in an emptyDir.
func validateFileKeyRef(f *v1.FileKeySelector, volumes map[string]*v1.Volume, at *field.Path) field.ErrorList {
	errs := append(required(at.Child("key"), f.Key), required(at.Child("path"), f.Path)...)
	if f.Key != "" {
		errs = append(errs, invalid(at.Child("key"), f.Key, validation.IsRelaxedEnvVarName(f.Key))...)
	}
	errs = append(errs, validateNoBacksteps(f.Path, at.Child("path"))...)
	switch v := volumes[f.VolumeName]; {
	case f.VolumeName == "":
		errs = append(errs, field.Required(at.Child("volumeName"), ""))
	case v == nil:
		errs = append(errs, field.NotFound(at.Child("volumeName"), f.VolumeName))
	case v.EmptyDir == nil:
		errs = append(errs,
			field.Invalid(at.Child("volumeName"), f.VolumeName, "referenced volume must be of type emptyDir"))
	}
	return errs
}

// validateEnvFrom checks the objects whose keys all become variables.
func validateEnvFrom(sources []v1.EnvFromSource, at *field.Path) (errs field.ErrorList) {
	for i, s := range sources {
		at := at.Index(i)
		if s.Prefix != "" {
			errs = append(errs, invalid(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		switch n := count(s.ConfigMapRef != nil, s.SecretRef != nil); {
		case n == 0:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		case n > 1:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
		object := func(kind, name string) {
			at := at.Child(kind, "name")
			errs = append(errs, required(at, name)...)
			if name != "" {
				errs = append(errs, invalid(at, name, apivalidation.NameIsDNSSubdomain(name, true))...)
			}
		}
		if s.ConfigMapRef != nil {
			object("configMapRef", s.ConfigMapRef.Name)
		}
		if s.SecretRef != nil {
			object("secretRef", s.SecretRef.Name)
		}
	}
	return errs
}

// validateFieldRef checks a reference to the pod's own fields; a single label or
// annotation may be named by its key.
func validateFieldRef(r *v1.ObjectFieldSelector, allowed []string, at *field.Path) field.ErrorList {
	switch {
	case r.FieldPath == "":
		return field.ErrorList{field.Required(at.Child("fieldPath"), "")}
	case r.APIVersion != "v1":
		return field.ErrorList{field.Invalid(at.Child("apiVersion"), r.APIVersion, "must be v1")}
	}
	if body, ok := strings.CutSuffix(r.FieldPath, "']"); ok {
		switch path, key, ok := strings.Cut(body, "['"); {
		case !ok || path == "":
		case path == "metadata.annotations":
			return invalid(at, r.FieldPath, validation.IsQualifiedName(strings.ToLower(key)))
		case path == "metadata.labels":
			return invalid(at, r.FieldPath, validation.IsQualifiedName(key))
		}
	}
	path := r.FieldPath
	if path == "spec.host" { // the name of the field in versions before v1
		path = "spec.nodeName"
	}
	if !slices.Contains(allowed, path) {
		return field.ErrorList{field.NotSupported(at.Child("fieldPath"), r.FieldPath, allowed)}
	}
	return nil
}

var resourceRefs = []string{
	"limits.cpu",
	"limits.memory",
	"limits.ephemeral-storage",
	"requests.cpu",
	"requests.memory",
	"requests.ephemeral-storage",
}

// The divisors that are allowed.
var (
	cpuUnits  = []string{"1m", "1"}
	byteUnits = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

// validateResourceRef checks a reference to a resource of a container. named is set in
// volumes, where the reference has to name the container.
func validateResourceRef(r *v1.ResourceFieldSelector, named bool, at *field.Path) (errs field.ErrorList) {
	huge := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	known := slices.Contains(resourceRefs, r.Resource)
	switch {
	case named && r.ContainerName == "":
		errs = append(errs, field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), ""))
	case !known && !huge:
		errs = append(errs, field.NotSupported(at.Child("resource"), r.Resource, resourceRefs))
	}
	if r.Divisor.IsZero() || !known && !huge {
		return errs
	}
	units := byteUnits
	if strings.HasSuffix(r.Resource, ".cpu") {
		units = cpuUnits
	}
	if !slices.Contains(units, r.Divisor.String()) {
		errs = append(errs, field.NotSupported(at.Child("divisor"), r.Divisor.String(), units))
	}
	return errs
}
