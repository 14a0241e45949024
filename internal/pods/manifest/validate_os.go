package manifest

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateOS refuses fields of another operating system than the one that the pod names.
func validateOS(s *v1.PodSpec, at *field.Path) field.ErrorList {
	if s.OS == nil {
		return nil
	}
	if errs := oneOf(s.OS.Name, at.Child("os", "name"), v1.Linux, v1.Windows); len(errs) > 0 {
		return errs
	}
	if s.OS.Name == v1.Linux {
		return validateLinux(s, at)
	}
	return validateWindows(s, at)
}

func validateLinux(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	const why = "windows options cannot be set for a linux pod"
	if s.SecurityContext.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), why))
	}
	eachContainer(s, at, func(c *v1.Container, at *field.Path) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), why))
		}
	})
	return errs
}

// setting is the name of a field, and whether it is set.
type setting struct {
	name string
	set  bool
}

func validateWindows(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	refuse := func(at *field.Path, settings ...setting) {
		for _, f := range settings {
			if f.set {
				errs = append(errs, field.Forbidden(at.Child(f.name), "cannot be set for a windows pod"))
			}
		}
	}
	sc := s.SecurityContext
	refuse(at,
		setting{"hostUsers", s.HostUsers != nil},
		setting{"hostPID", s.HostPID},
		setting{"hostIPC", s.HostIPC},
		setting{"shareProcessNamespace", s.ShareProcessNamespace != nil},
	)
	refuse(at.Child("securityContext"),
		setting{"appArmorProfile", sc.AppArmorProfile != nil},
		setting{"seLinuxOptions", sc.SELinuxOptions != nil},
		setting{"seccompProfile", sc.SeccompProfile != nil},
		setting{"fsGroup", sc.FSGroup != nil},
		setting{"fsGroupChangePolicy", sc.FSGroupChangePolicy != nil},
		setting{"sysctls", len(sc.Sysctls) > 0},
		setting{"runAsUser", sc.RunAsUser != nil},
		setting{"runAsGroup", sc.RunAsGroup != nil},
		setting{"supplementalGroups", sc.SupplementalGroups != nil},
		setting{"supplementalGroupsPolicy", sc.SupplementalGroupsPolicy != nil},
		setting{"seLinuxChangePolicy", sc.SELinuxChangePolicy != nil},
	)
	eachContainer(s, at, func(c *v1.Container, at *field.Path) {
		sc := c.SecurityContext
		if sc == nil {
			return
		}
		refuse(at.Child("securityContext"),
			setting{"appArmorProfile", sc.AppArmorProfile != nil},
			setting{"seLinuxOptions", sc.SELinuxOptions != nil},
			setting{"seccompProfile", sc.SeccompProfile != nil},
			setting{"capabilities", sc.Capabilities != nil},
			setting{"readOnlyRootFilesystem", sc.ReadOnlyRootFilesystem != nil},
			setting{"privileged", sc.Privileged != nil},
			setting{"allowPrivilegeEscalation", sc.AllowPrivilegeEscalation != nil},
			setting{"procMount", sc.ProcMount != nil},
			setting{"runAsUser", sc.RunAsUser != nil},
			setting{"runAsGroup", sc.RunAsGroup != nil},
		)
	})
	return errs
}

// validateHostProcess checks that either all containers of a pod or none are
// processes of a Windows host.
func validateHostProcess(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	hostProcess := func(o *v1.WindowsSecurityContextOptions) *bool {
		if o == nil {
			return nil
		}
		return o.HostProcess
	}
	ofPod := hostProcess(s.SecurityContext.WindowsOptions)
	all, host := 0, 0
	eachContainer(s, at, func(c *v1.Container, at *field.Path) {
		all++
		on := ofPod
		if c.SecurityContext != nil {
			if own := hostProcess(c.SecurityContext.WindowsOptions); own != nil {
				if ofPod != nil && *ofPod != *own {
					errs = append(errs,
						field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own,
							fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v",
								*ofPod)))
				}
				on = own
			}
		}
		if on != nil && *on {
			host++
		}
	})
	if host > 0 && host != all {
		errs = append(errs, field.Invalid(at, "",
			"If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if host > 0 && !s.HostNetwork {
		errs = append(errs,
			field.Invalid(at.Child("hostNetwork"), false,
				"hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}

var (
	controlCharacter = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName      = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDomain    = regexp.MustCompile(
		`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	notInUserName = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	dotsAndSpaces = regexp.MustCompile(`^[\. ]+$`)
)

// validateWindowsOptions checks settings that only a Windows node uses.
func validateWindowsOptions(o *v1.WindowsSecurityContextOptions, at *field.Path) (errs field.ErrorList) {
	if o == nil {
		return nil
	}
	if name := o.GMSACredentialSpecName; name != nil {
		errs = append(errs, invalid(at.Child("gmsaCredentialSpecName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		switch at := at.Child("gmsaCredentialSpec"); {
		case *spec == "":
			errs = append(errs, field.Invalid(at, "", "gmsaCredentialSpec cannot be an empty string"))
		case len(*spec) > 64<<10:
			errs = append(errs, field.Invalid(at, "", "gmsaCredentialSpec size must be under 64 KiB"))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, invalid(at.Child("runAsUserName"), *o.RunAsUserName, badUserName(*o.RunAsUserName))...)
	}
	return errs
}

// badUserName returns the errors in the name of a Windows user, which may have a domain
// before it.
func badUserName(name string) (why []string) {
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case controlCharacter.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	if len(domain) >= 256 {
		why = append(why, "runAsUserName's Domain length must be under 256 characters")
	}
	if hasDomain && !netBIOSName.MatchString(domain) && !windowsDomain.MatchString(domain) {
		why = append(why, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		why = append(why, "runAsUserName's User cannot be empty")
	}
	if len(user) > 104 {
		why = append(why, "runAsUserName's User length must not be longer than 104 characters")
	}
	if dotsAndSpaces.MatchString(user) {
		why = append(why, "runAsUserName's User cannot contain only periods or spaces")
	}
	if notInUserName.MatchString(user) {
		why = append(why, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return why
}
