package desired

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateVolumes(volumes []v1.Volume, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case seen[v.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		default:
			errs = append(errs, invalid(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		seen[v.Name] = true
		errs = append(errs, validateSource(&v.VolumeSource, at)...)
	}
	return errs
}

var hostPathTypes = []v1.HostPathType{v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev}

func validateSource(v *v1.VolumeSource, at *field.Path) (errs field.ErrorList) {
	switch n := setPointers(reflect.ValueOf(*v)); {
	case n == 0:
		return field.ErrorList{field.Required(at, "must specify a volume type")}
	case n > 1:
		return field.ErrorList{field.Forbidden(at, "may not specify more than 1 volume type")}
	}
	switch {
	case v.HostPath != nil:
		at := at.Child("hostPath")
		if v.HostPath.Path == "" {
			errs = append(errs, field.Required(at.Child("path"), ""))
		}
		errs = append(errs, validateNoBacksteps(v.HostPath.Path, at.Child("path"))...)
		if t := *v.HostPath.Type; !slices.Contains(hostPathTypes, t) {
			errs = append(errs, field.NotSupported(at.Child("type"), t, hostPathTypes[1:]))
		}
	case v.EmptyDir != nil:
		at := at.Child("emptyDir")
		if s := v.EmptyDir.SizeLimit; s != nil && s.Sign() < 0 {
			errs = append(errs, field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
		}
	case v.DownwardAPI != nil:
		errs = append(errs, validateMode(v.DownwardAPI.DefaultMode, at.Child("downwardAPI", "defaultMode"))...)
		errs = append(errs, validateItems(v.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
	case v.Projected != nil:
		errs = append(errs, validateProjected(v.Projected, at.Child("projected"))...)
	case v.Image != nil:
		at := at.Child("image")
		if v.Image.Reference == "" {
			errs = append(errs, field.Required(at.Child("reference"), ""))
		}
		errs = append(errs, oneOf(v.Image.PullPolicy, at.Child("pullPolicy"), v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	case v.NFS != nil:
		for name, value := range map[string]string{"server": v.NFS.Server, "path": v.NFS.Path} {
			if value == "" {
				errs = append(errs, field.Required(at.Child("nfs", name), ""))
			}
		}
		if v.NFS.Path != "" && !strings.HasPrefix(v.NFS.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("nfs", "path"), v.NFS.Path, "must be an absolute path"))
		}
	}
	return errs
}

func validateProjected(p *v1.ProjectedVolumeSource, at *field.Path) (errs field.ErrorList) {
	errs = validateMode(p.DefaultMode, at.Child("defaultMode"))
	for i := range p.Sources {
		source, at := &p.Sources[i], at.Child("sources").Index(i)
		switch n := setPointers(reflect.ValueOf(*source)); {
		case n == 0:
			errs = append(errs, field.Required(at, "must specify a source type"))
		case n > 1:
			errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type per source"))
		}
		if source.DownwardAPI != nil {
			errs = append(errs, validateItems(source.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
		}
	}
	return errs
}

// volumeFields are what a file may be filled with from the pod itself.
var volumeFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}

func validateItems(items []v1.DownwardAPIVolumeFile, at *field.Path) (errs field.ErrorList) {
	for i, item := range items {
		at := at.Index(i)
		errs = append(errs, validateRelative(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, validateFieldRef(item.FieldRef, volumeFields, at.Child("fieldRef"))...)
		case item.ResourceFieldRef != nil:
			if item.ResourceFieldRef.ContainerName == "" {
				errs = append(errs, field.Required(at.Child("resourceFieldRef", "containerName"), ""))
			}
			errs = append(errs, validateResourceRef(item.ResourceFieldRef.Resource, at.Child("resourceFieldRef", "resource"))...)
		default:
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
	}
	return errs
}

// validateRelative checks the path of a file in a volume.
func validateRelative(p string, at *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateBelow(p, at)
	if strings.HasPrefix(p, "..") && len(errs) == 0 {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// setPointers counts the fields of a struct of pointers that are set.
func setPointers(v reflect.Value) int {
	n := 0
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}
