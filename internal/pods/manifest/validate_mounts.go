package manifest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateMounts checks the volume mounts and devices of a container. A volume is mounted
// or a device, not both, and paths are unique.
func validateMounts(c *v1.Container, volumes map[string]*v1.Volume, at *field.Path) (errs field.ErrorList) {
	mounts, devices := at.Child("volumeMounts"), at.Child("volumeDevices")
	seen := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := mounts.Index(i)
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case volumes[m.Name] == nil:
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		case slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == m.Name }):
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		case seen[m.MountPath]:
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		case slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.DevicePath == m.MountPath }):
			errs = append(errs,
				field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		seen[m.MountPath] = true
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs,
				field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, validateBelow(m.SubPath, at.Child("subPath"))...)
		errs = append(errs, validateBelow(m.SubPathExpr, at.Child("subPathExpr"))...)
		errs = append(errs, validatePropagation(m, c, at)...)
	}
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range c.VolumeDevices {
		at := devices.Index(i)
		switch v := volumes[d.Name]; {
		case d.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[d.Name]:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be unique"))
		case v == nil:
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		names[d.Name] = true
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		case paths[d.DevicePath]:
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		}
		paths[d.DevicePath] = true
		errs = append(errs, validateNoBacksteps(d.DevicePath, at.Child("devicePath"))...)
	}
	return errs
}

func validatePropagation(m v1.VolumeMount, c *v1.Container, at *field.Path) (errs field.ErrorList) {
	mode := v1.MountPropagationNone
	if m.MountPropagation != nil {
		mode = *m.MountPropagation
		modes := []v1.MountPropagationMode{
			v1.MountPropagationBidirectional,
			v1.MountPropagationHostToContainer,
			v1.MountPropagationNone,
		}
		if !slices.Contains(modes, mode) {
			errs = append(errs, field.NotSupported(at.Child("mountPropagation"), mode, modes))
		}
	}
	privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	if mode == v1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(at.Child("mountPropagation"),
			"Bidirectional mount propagation is available only to privileged containers"))
	}
	if r := m.RecursiveReadOnly; r != nil && *r != v1.RecursiveReadOnlyDisabled {
		at := at.Child("recursiveReadOnly")
		kinds := []v1.RecursiveReadOnlyMode{
			v1.RecursiveReadOnlyDisabled,
			v1.RecursiveReadOnlyIfPossible,
			v1.RecursiveReadOnlyEnabled,
		}
		if !slices.Contains(kinds, *r) {
			return append(errs, field.NotSupported(at, *r, kinds))
		}
		if !m.ReadOnly {
			errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
		}
		if mode != v1.MountPropagationNone {
			errs = append(errs,
				field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
		}
	}
	return errs
}
