package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"
)

// validatePodSecurity checks what holds for all of a pod's processes. mounted
// is set if the node labels volumes when it mounts them (the gate SELinuxMount).
func validatePodSecurity(s *v1.PodSpec, mounted bool, spec *field.Path) (errs field.ErrorList) {
	sc, at := s.SecurityContext, spec.Child("securityContext")
	if s.HostPID && s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		errs = append(errs,
			field.Invalid(at.Child("shareProcessNamespace"), true,
				"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, validateHostUsers(s, spec)...)
	errs = append(errs, validateIDs(sc.RunAsUser, sc.RunAsGroup, at)...)
	if sc.FSGroup != nil {
		errs = append(errs, invalid(at.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))...)
	}
	for i, g := range sc.SupplementalGroups {
		errs = append(errs, invalid(at.Child("supplementalGroups").Index(i), g, validation.IsValidGroupID(g))...)
	}
	errs = append(errs, anyOf(sc.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"),
		v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)...)
	errs = append(errs, anyOf(sc.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"),
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)...)
	changes := []v1.PodSELinuxChangePolicy{v1.SELinuxChangePolicyRecursive}
	if mounted {
		changes = append(changes, v1.SELinuxChangePolicyMountOption)
	}
	errs = append(errs, anyOf(sc.SELinuxChangePolicy, at.Child("seLinuxChangePolicy"), changes...)...)
	errs = append(errs, validateSysctls(s, at.Child("sysctls"))...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	errs = append(errs, validateWindowsOptions(sc.WindowsOptions, at.Child("windowsOptions"))...)
	return append(errs, validateHostProcess(s, spec)...)
}

// validateHostUsers refuses fields that a pod with a user namespace cannot have.
func validateHostUsers(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if s.HostUsers == nil || *s.HostUsers {
		return nil
	}
	for _, host := range []struct {
		name string
		on   bool
	}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
		if host.on {
			errs = append(errs, field.Forbidden(at.Child(host.name), "when `hostUsers` is false"))
		}
	}
	eachContainer(s, at, func(c *v1.Container, at *field.Path) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(at.Child("volumeDevices"), "when `hostUsers` is false"))
		}
	})
	return errs
}

// eachContainer calls do with every container of a pod and its place.
func eachContainer(s *v1.PodSpec, at *field.Path, do func(*v1.Container, *field.Path)) {
	for i := range s.InitContainers {
		do(&s.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		do(&s.Containers[i], at.Child("containers").Index(i))
	}
	for i := range s.EphemeralContainers {
		do((*v1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon),
			at.Child("ephemeralContainers").Index(i))
	}
}

func validateIDs(user, group *int64, at *field.Path) (errs field.ErrorList) {
	if user != nil {
		errs = append(errs, invalid(at.Child("runAsUser"), *user, validation.IsValidUserID(*user))...)
	}
	if group != nil {
		errs = append(errs, invalid(at.Child("runAsGroup"), *group, validation.IsValidGroupID(*group))...)
	}
	return errs
}

// sysctlName matches the name of a sysctl, with dots or slashes.
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// validateSysctls checks sysctls. A pod cannot set those of a namespace that it shares
// with the node.
func validateSysctls(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, setting := range s.SecurityContext.Sysctls {
		at := at.Index(i).Child("name")
		switch {
		case setting.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(setting.Name) > 253 || !sysctlName.MatchString(setting.Name):
			errs = append(errs,
				field.Invalid(at, setting.Name,
					fmt.Sprintf("must have at most 253 characters and match regex %s", sysctlName)))
		case seen[setting.Name]:
			errs = append(errs, field.Duplicate(at, setting.Name))
		}
		seen[setting.Name] = true
		switch ns, _, _ := sysctl.GetNamespace(setting.Name); {
		case s.HostNetwork && ns == sysctl.NetNamespace:
			errs = append(errs, field.Invalid(at, setting.Name, "may not be specified when 'hostNetwork' is true"))
		case s.HostIPC && ns == sysctl.IPCNamespace:
			errs = append(errs, field.Invalid(at, setting.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	return errs
}

func validateSeccomp(p *v1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(p.Type, at.Child("type"), v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault,
		v1.SeccompProfileTypeUnconfined)
	switch {
	case p.Type == v1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(at.Child("localhostProfile"), "must be set when seccomp type is Localhost"))
	case p.Type == v1.SeccompProfileTypeLocalhost:
		errs = append(errs, validateBelow(*p.LocalhostProfile, at.Child("localhostProfile"))...)
	case p.LocalhostProfile != nil:
		errs = append(errs,
			field.Invalid(at.Child("localhostProfile"), *p.LocalhostProfile,
				"can only be set when seccomp type is Localhost"))
	}
	return errs
}

func validateAppArmor(p *v1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(p.Type, at.Child("type"), v1.AppArmorProfileTypeLocalhost,
		v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	profile, at := p.LocalhostProfile, at.Child("localhostProfile")
	known := len(errs) == 0
	switch {
	case p.Type == v1.AppArmorProfileTypeLocalhost && (profile == nil || *profile == ""):
		errs = append(errs, field.Required(at, "must be set when AppArmor type is Localhost"))
	case p.Type == v1.AppArmorProfileTypeLocalhost && strings.TrimSpace(*profile) != *profile:
		errs = append(errs, field.Invalid(at, *profile, "must not be padded with whitespace"))
	case p.Type == v1.AppArmorProfileTypeLocalhost && len(*profile) > 4095:
		errs = append(errs, field.TooLong(at, "", 4095))
	case p.Type != v1.AppArmorProfileTypeLocalhost && profile != nil && known:
		errs = append(errs, field.Invalid(at, *profile, "can only be set when AppArmor type is Localhost"))
	}
	return errs
}

// validateSecurity checks what holds for the processes of one container.
// ownUsers is set if the pod has a user namespace of its own.
func validateSecurity(sc *v1.SecurityContext, ownUsers bool, at *field.Path) (errs field.ErrorList) {
	if sc == nil {
		return nil
	}
	errs = append(errs, validateIDs(sc.RunAsUser, sc.RunAsGroup, at)...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	errs = append(errs, validateWindowsOptions(sc.WindowsOptions, at.Child("windowsOptions"))...)
	errs = append(errs, anyOf(sc.ProcMount, at.Child("procMount"), v1.DefaultProcMount, v1.UnmaskedProcMount)...)
	if sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount && !ownUsers {
		errs = append(errs,
			field.Invalid(at.Child("procMount"), *sc.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
	}
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			errs = append(errs,
				field.Invalid(at, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs = append(errs,
				field.Invalid(at,
					"", "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	return errs
}

// validateConfinement checks the former annotations for seccomp and AppArmor, and that
// they have the same values as the fields.
func validateConfinement(p *v1.Pod) (errs field.ErrorList) {
	meta, spec := field.NewPath("metadata", "annotations"), field.NewPath("spec")
	containers := map[string]bool{}
	eachContainer(&p.Spec, spec, func(c *v1.Container, _ *field.Path) { containers[c.Name] = true })
	for key, value := range p.Annotations {
		at := meta.Key(key)
		if name, ok := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix); ok {
			if !containers[name] {
				errs = append(errs, field.Invalid(at, name, "container not found"))
			}
			switch {
			case value == "", value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault,
				value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
			case !strings.HasPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix):
				errs = append(errs, field.Invalid(at, value, fmt.Sprintf("invalid AppArmor profile name: %q", value)))
			}
		}
		if key == v1.SeccompPodAnnotationKey || strings.HasPrefix(key, v1.SeccompContainerAnnotationKeyPrefix) {
			errs = append(errs, validateSeccompAnnotation(value, at)...)
		}
	}
	at := spec.Child("securityContext")
	if a, ok := p.Annotations[v1.SeccompPodAnnotationKey]; ok &&
		seccompDiffers(a, p.Spec.SecurityContext.SeccompProfile) {
		errs = append(errs,
			field.Forbidden(at.Child("seccompProfile"), "seccomp type in annotation and field must match"))
	}
	windows := p.Spec.OS != nil && p.Spec.OS.Name == v1.Windows
	eachContainer(&p.Spec, spec, func(c *v1.Container, at *field.Path) {
		seccomp, apparmor := (*v1.SeccompProfile)(nil), p.Spec.SecurityContext.AppArmorProfile
		if sc := c.SecurityContext; sc != nil {
			seccomp = sc.SeccompProfile
			if sc.AppArmorProfile != nil {
				apparmor = sc.AppArmorProfile
			}
		}
		at = at.Child("securityContext")
		if a, ok := p.Annotations[v1.SeccompContainerAnnotationKeyPrefix+c.Name]; ok && seccompDiffers(a, seccomp) {
			errs = append(errs,
				field.Forbidden(at.Child("seccompProfile"), "seccomp type in annotation and field must match"))
		}
		a, ok := p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if ok && !windows && appArmorDiffers(a, apparmor) {
			errs = append(errs,
				field.Forbidden(at.Child("appArmorProfile"), "apparmor type in annotation and field must match"))
		}
	})
	return errs
}

func validateSeccompAnnotation(value string, at *field.Path) field.ErrorList {
	switch value {
	case v1.SeccompProfileRuntimeDefault, v1.DeprecatedSeccompProfileDockerDefault, v1.SeccompProfileNameUnconfined:
		return nil
	}
	if profile, ok := strings.CutPrefix(value, v1.SeccompLocalhostProfileNamePrefix); ok {
		return validateBelow(profile, at)
	}
	return field.ErrorList{field.Invalid(at, value, "must be a valid seccomp profile")}
}

// seccompDiffers reports whether an annotation has another value than the field.
func seccompDiffers(annotation string, p *v1.SeccompProfile) bool {
	if p == nil {
		return false
	}
	switch p.Type {
	case v1.SeccompProfileTypeUnconfined:
		return annotation != v1.SeccompProfileNameUnconfined
	case v1.SeccompProfileTypeRuntimeDefault:
		return annotation != v1.SeccompProfileRuntimeDefault && annotation != v1.DeprecatedSeccompProfileDockerDefault
	case v1.SeccompProfileTypeLocalhost:
		return p.LocalhostProfile == nil || annotation != v1.SeccompLocalhostProfileNamePrefix+*p.LocalhostProfile
	}
	return false
}

// appArmorDiffers reports whether an annotation has another value than the field.
func appArmorDiffers(annotation string, p *v1.AppArmorProfile) bool {
	if p == nil {
		return false
	}
	switch p.Type {
	case v1.AppArmorProfileTypeUnconfined:
		return annotation != v1.DeprecatedAppArmorBetaProfileNameUnconfined
	case v1.AppArmorProfileTypeRuntimeDefault:
		return annotation != v1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case v1.AppArmorProfileTypeLocalhost:
		return p.LocalhostProfile == nil || annotation != v1.DeprecatedAppArmorBetaProfileNamePrefix+*p.LocalhostProfile
	}
	return false
}
