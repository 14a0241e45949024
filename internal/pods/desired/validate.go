package desired

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate finds what the API server would refuse in a pod that is created, in
// its words. Defaults have been set. What only the scheduler reads is left out:
// nobody schedules a static pod.
func validate(p *v1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	at := field.NewPath("spec")
	s := &p.Spec
	errs = append(errs, validateVolumes(s.Volumes, at.Child("volumes"))...)
	errs = append(errs, validateContainers(s, at)...)
	errs = append(errs, validateDNS(s, at)...)
	errs = append(errs, validatePodSecurity(s, at)...)
	errs = append(errs, oneOf(s.RestartPolicy, at.Child("restartPolicy"), v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)...)
	if n := s.ActiveDeadlineSeconds; n != nil && (*n < 1 || *n > 1<<31-1) {
		errs = append(errs, field.Invalid(at.Child("activeDeadlineSeconds"), *n, validation.InclusiveRangeError(1, 1<<31-1)))
	}
	errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	for i, t := range s.Tolerations {
		errs = append(errs, validateToleration(t, at.Child("tolerations").Index(i))...)
	}
	for i, h := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		if _, err := netip.ParseAddr(h.IP); err != nil {
			errs = append(errs, field.Invalid(at.Child("ip"), h.IP, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
		}
		for j, name := range h.Hostnames {
			errs = append(errs, invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, invalid(at.Child("runtimeClassName"), *s.RuntimeClassName, validation.IsDNS1123Subdomain(*s.RuntimeClassName))...)
	}
	if s.PriorityClassName != "" {
		errs = append(errs, invalid(at.Child("priorityClassName"), s.PriorityClassName, validation.IsDNS1123Subdomain(s.PriorityClassName))...)
	}
	if s.OS != nil {
		errs = append(errs, oneOf(s.OS.Name, at.Child("os", "name"), v1.Linux, v1.Windows)...)
	}
	if s.Resources != nil {
		errs = append(errs, validatePodResources(p, at)...)
	}
	for i, g := range s.ReadinessGates {
		errs = append(errs, invalid(at.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType), validation.IsQualifiedName(string(g.ConditionType)))...)
	}
	if len(s.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if len(s.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(at.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

func validateDNS(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	errs = oneOf(s.DNSPolicy, at.Child("dnsPolicy"), v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)
	if s.Hostname != "" {
		errs = append(errs, invalid(at.Child("hostname"), s.Hostname, validation.IsDNS1123Label(s.Hostname))...)
	}
	if s.Subdomain != "" {
		errs = append(errs, invalid(at.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label(s.Subdomain))...)
	}
	c, at := s.DNSConfig, at.Child("dnsConfig")
	if s.DNSPolicy == v1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		return append(errs, field.Required(at.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", v1.DNSNone)))
	}
	if c == nil {
		return errs
	}
	if len(c.Nameservers) > 3 {
		errs = append(errs, field.Invalid(at.Child("nameservers"), c.Nameservers, "must not have more than 3 nameservers"))
	}
	for i, ns := range c.Nameservers {
		if _, err := netip.ParseAddr(ns); err != nil {
			errs = append(errs, field.Invalid(at.Child("nameservers").Index(i), ns, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
		}
	}
	if len(c.Searches) > 32 {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches, "must not have more than 32 search paths"))
	}
	if n := len(strings.Join(c.Searches, " ")); n > 2048 {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches, "must not have more than 2048 characters (including spaces) in the search list"))
	}
	for i, o := range c.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func validatePodSecurity(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	sc, at := s.SecurityContext, at.Child("securityContext")
	if s.HostPID && s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if s.HostUsers != nil && !*s.HostUsers {
		for name, on := range map[string]bool{"hostNetwork": s.HostNetwork, "hostPID": s.HostPID, "hostIPC": s.HostIPC} {
			if on {
				errs = append(errs, field.Forbidden(at.Child(name), "when `hostUsers` is false"))
			}
		}
	}
	errs = append(errs, validateIDs(sc.RunAsUser, sc.RunAsGroup, at)...)
	if sc.FSGroup != nil {
		errs = append(errs, invalid(at.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))...)
	}
	for i, g := range sc.SupplementalGroups {
		errs = append(errs, invalid(at.Child("supplementalGroups").Index(i), g, validation.IsValidGroupID(g))...)
	}
	if sc.FSGroupChangePolicy != nil {
		errs = append(errs, oneOf(*sc.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)...)
	}
	seen := map[string]bool{}
	for i, sysctl := range sc.Sysctls {
		at := at.Child("sysctls").Index(i).Child("name")
		switch {
		case sysctl.Name == "":
			errs = append(errs, field.Required(at, ""))
		case strings.ContainsAny(sysctl.Name, " \t\n"):
			errs = append(errs, field.Invalid(at, sysctl.Name, "must be the name of a sysctl"))
		case seen[sysctl.Name]:
			errs = append(errs, field.Duplicate(at, sysctl.Name))
		}
		seen[sysctl.Name] = true
	}
	return append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
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

func validateSeccomp(p *v1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(p.Type, at.Child("type"), v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)
	switch {
	case p.Type == v1.SeccompProfileTypeLocalhost && (p.LocalhostProfile == nil || *p.LocalhostProfile == ""):
		errs = append(errs, field.Required(at.Child("localhostProfile"), "must be set when seccomp type is Localhost"))
	case p.Type == v1.SeccompProfileTypeLocalhost:
		errs = append(errs, validateBelow(*p.LocalhostProfile, at.Child("localhostProfile"))...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at.Child("localhostProfile"), *p.LocalhostProfile, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

// validateToleration checks one toleration.
func validateToleration(t v1.Toleration, at *field.Path) (errs field.ErrorList) {
	if t.Key != "" {
		errs = append(errs, invalid(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
	} else if t.Operator != v1.TolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	switch t.Operator {
	case "", v1.TolerationOpEqual:
		errs = append(errs, invalid(at.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value))...)
	case v1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []v1.TolerationOperator{v1.TolerationOpEqual, v1.TolerationOpExists}))
	}
	if t.Effect != "" {
		errs = append(errs, oneOf(t.Effect, at.Child("effect"), v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	return errs
}

// invalid makes one error of each complaint about a value.
func invalid(at *field.Path, value any, complaints []string) (errs field.ErrorList) {
	for _, why := range complaints {
		errs = append(errs, field.Invalid(at, value, why))
	}
	return errs
}

// oneOf refuses a value that is not listed; the empty one is called missing.
func oneOf[T ~string](v T, at *field.Path, allowed ...T) field.ErrorList {
	switch {
	case v == "":
		return field.ErrorList{field.Required(at, "")}
	case !slices.Contains(allowed, v):
		return field.ErrorList{field.NotSupported(at, v, allowed)}
	}
	return nil
}

func notNegative(at *field.Path, v int64) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(v, at)
}

// validateBelow refuses a path that leads out of where it is put.
func validateBelow(p string, at *field.Path) (errs field.ErrorList) {
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, validateNoBacksteps(p, at)...)
}

func validateNoBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}
