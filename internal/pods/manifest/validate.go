package manifest

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate returns the errors that upstream's kubelet returns for a manifest, and nearly
// all that the API server would return for the mirror pod, with their texts. Defaults have
// been set.
func (m Compiler) validate(p *v1.Pod) field.ErrorList {
	meta, at := field.NewPath("metadata"), field.NewPath("spec")
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, meta)
	errs = append(errs, validateUID(string(p.UID), meta.Child("uid"))...)
	errs = append(errs, validateFinalizers(p.Finalizers, meta.Child("finalizers"))...)
	errs = append(errs, validateAnnotations(p.Annotations, meta.Child("annotations"))...)
	errs = append(errs, validateConfinement(p)...)
	s := &p.Spec
	errs = append(errs, validateVolumes(p.Name, s.Volumes, at.Child("volumes"))...)
	errs = append(errs, validateClaims(s.ResourceClaims, at.Child("resourceClaims"))...)
	errs = append(errs, validateContainers(s, at)...)
	errs = append(errs, validateHostPorts(s, at)...)
	errs = append(errs, validateNetwork(s, at)...)
	errs = append(errs, validatePodSecurity(s, m.MountSELinux, at)...)
	errs = append(errs, validateScheduling(s, at)...)
	errs = append(errs, validateOS(s, at)...)
	errs = append(errs, oneOf(s.RestartPolicy, at.Child("restartPolicy"), v1.RestartPolicyAlways,
		v1.RestartPolicyOnFailure, v1.RestartPolicyNever)...)
	if n := s.ActiveDeadlineSeconds; n != nil && (*n < 1 || *n > 1<<31-1) {
		errs = append(errs,
			field.Invalid(at.Child("activeDeadlineSeconds"), *n, validation.InclusiveRangeError(1, 1<<31-1)))
	}
	for _, ref := range []struct{ name, value string }{
		{"priorityClassName", s.PriorityClassName},
		{"serviceAccountName", s.ServiceAccountName},
		{"nodeName", s.NodeName},
	} {
		if ref.value != "" {
			errs = append(errs,
				invalid(at.Child(ref.name), ref.value, apivalidation.NameIsDNSSubdomain(ref.value, false))...)
		}
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, invalid(at.Child("runtimeClassName"), *s.RuntimeClassName,
			apivalidation.NameIsDNSSubdomain(*s.RuntimeClassName, false))...)
	}
	if s.Overhead != nil {
		errs = append(errs, validateOverhead(s.Overhead, at.Child("overhead"))...)
	}
	if s.Resources != nil {
		errs = append(errs, validatePodResources(p, at)...)
	}
	for i, g := range s.ReadinessGates {
		errs = append(errs, invalid(at.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType),
			validation.IsQualifiedName(string(g.ConditionType)))...)
	}
	if len(s.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if s.ServiceAccountName == "" {
		errs = append(errs, tokensWithoutAccount(s.Volumes, at.Child("volumes"))...)
	}
	return errs
}

// validateUID refuses a UID that cannot be the name of the pod's directory
// (docs/decisions/0116).
func validateUID(uid string, at *field.Path) field.ErrorList {
	odd := strings.ContainsFunc(uid, func(r rune) bool { return r == '/' || r < ' ' || r > '~' })
	if odd || uid == "." || uid == ".." || len(uid) > 128 {
		return field.ErrorList{field.Invalid(at, uid,
			"must be usable as the name of a directory: at most 128 printable characters without '/', and not '.' or '..'")}
	}
	return nil
}

// tokensWithoutAccount refuses service account tokens in a pod without a service account.
func tokensWithoutAccount(volumes []v1.Volume, at *field.Path) (errs field.ErrorList) {
	for i, v := range volumes {
		if v.Projected == nil {
			continue
		}
		for j, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				errs = append(errs,
					field.Forbidden(at.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
						"must not be specified when serviceAccountName is not set"))
			}
		}
	}
	return errs
}

// Annotations that Kubernetes evaluates.
const (
	annotationTolerations  = "scheduler.alpha.kubernetes.io/tolerations"
	annotationDeletionCost = "controller.kubernetes.io/pod-deletion-cost"
)

func validateAnnotations(annotations map[string]string, at *field.Path) (errs field.ErrorList) {
	if text := annotations[annotationTolerations]; text != "" {
		at := at.Child(annotationTolerations)
		// Read by the names of the Go fields, as upstream's internal version is.
		var tolerations []v1.Toleration
		if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
			errs = append(errs, field.Invalid(at, text, err.Error()))
		}
		for i, t := range tolerations {
			errs = append(errs, validateToleration(t, at.Index(i))...)
		}
	}
	if cost, ok := annotations[annotationDeletionCost]; ok {
		_, err := strconv.ParseInt(cost, 10, 32)
		if err != nil || cost != "0" && !strings.ContainsAny(cost[:1], "-123456789") {
			errs = append(errs, field.Invalid(at.Key(annotationDeletionCost), cost, "must be a 32bit integer"))
		}
	}
	return errs
}

// validateNetwork checks the names and addresses that a pod sees.
func validateNetwork(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := validateDNS(s, at)
	for _, label := range []struct{ name, value string }{{"hostname", s.Hostname}, {"subdomain", s.Subdomain}} {
		if label.value != "" {
			errs = append(errs, invalid(at.Child(label.name), label.value, validation.IsDNS1123Label(label.value))...)
		}
	}
	if name, at := s.HostnameOverride, at.Child("hostnameOverride"); name != nil {
		if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
			errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
		}
		if s.HostNetwork {
			errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
		}
		if len(*name) > 64 {
			errs = append(errs, field.TooLong(at, *name, 64))
		}
		errs = append(errs, invalid(at, *name, validation.IsDNS1123Subdomain(*name))...)
	}
	for i, h := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		errs = append(errs, validateIP(h.IP, at.Child("ip"))...)
		for j, name := range h.Hostnames {
			errs = append(errs, invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

// validateIP refuses addresses that parsers read differently, such as those with leading
// zeros.
func validateIP(ip string, at *field.Path) field.ErrorList {
	return validation.IsValidIPForLegacyField(at, ip, true, nil)
}

func validateDNS(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	errs = oneOf(s.DNSPolicy, at.Child("dnsPolicy"), v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst,
		v1.DNSDefault, v1.DNSNone)
	c, at := s.DNSConfig, at.Child("dnsConfig")
	if s.DNSPolicy == v1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		return append(errs, field.Required(at.Child("nameservers"),
			fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", v1.DNSNone)))
	}
	if c == nil {
		return errs
	}
	if len(c.Nameservers) > 3 {
		errs = append(errs,
			field.Invalid(at.Child("nameservers"), c.Nameservers, "must not have more than 3 nameservers"))
	}
	for i, ns := range c.Nameservers {
		errs = append(errs, validateIP(ns, at.Child("nameservers").Index(i))...)
	}
	if len(c.Searches) > 32 {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches, "must not have more than 32 search paths"))
	}
	if n := len(strings.Join(c.Searches, " ")); n > 2048 {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches,
			"must not have more than 2048 characters (including spaces) in the search list"))
	}
	for i, search := range c.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			errs = append(errs, invalid(at.Child("searches").Index(i), search,
				validation.IsDNS1123SubdomainWithUnderscore(search))...)
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

// invalid returns one error for each message about a value.
func invalid(at *field.Path, value any, complaints []string) (errs field.ErrorList) {
	for _, why := range complaints {
		errs = append(errs, field.Invalid(at, value, why))
	}
	return errs
}

// oneOf refuses a value that is not listed; an empty one is reported as required.
func oneOf[T ~string](v T, at *field.Path, allowed ...T) field.ErrorList {
	switch {
	case v == "":
		return field.ErrorList{field.Required(at, "")}
	case !slices.Contains(allowed, v):
		return field.ErrorList{field.NotSupported(at, v, allowed)}
	}
	return nil
}

// anyOf refuses a value that is set and not listed.
func anyOf[T ~string](v *T, at *field.Path, allowed ...T) field.ErrorList {
	if v == nil || slices.Contains(allowed, *v) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *v, allowed)}
}

// required refuses an empty value.
func required(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func notNegative(at *field.Path, v int64) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(v, at)
}

// validateBelow refuses a path that is absolute or leads out of its directory.
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
