package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateScheduling checks fields that only the scheduler uses. A static pod is not
// scheduled, but the API server would refuse its mirror pod.
func validateScheduling(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))
	for i, t := range s.Tolerations {
		errs = append(errs, validateToleration(t, at.Child("tolerations").Index(i))...)
	}
	if a, at := s.Affinity, at.Child("affinity"); a != nil {
		errs = append(errs, validateNodeAffinity(a.NodeAffinity, at.Child("nodeAffinity"))...)
		if p := a.PodAffinity; p != nil {
			errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
				p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))...)
		}
		if p := a.PodAntiAffinity; p != nil {
			errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
				p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))...)
		}
	}
	errs = append(errs, validateSpread(s.TopologySpreadConstraints, at.Child("topologySpreadConstraints"))...)
	errs = append(errs, anyOf(s.PreemptionPolicy, at.Child("preemptionPolicy"),
		v1.PreemptLowerPriority, v1.PreemptNever)...)
	if g, at := s.SchedulingGroup, at.Child("schedulingGroup", "podGroupName"); g != nil {
		if g.PodGroupName == nil {
			errs = append(errs, field.Required(at, "must specify one of: `podGroupName`"))
		} else {
			errs = append(errs,
				invalid(at, *g.PodGroupName, apivalidation.NameIsDNSSubdomain(*g.PodGroupName, false))...)
		}
	}
	if len(s.SchedulingGates) > 0 {
		errs = append(errs,
			field.Forbidden(at.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

// validateToleration checks one toleration.
func validateToleration(t v1.Toleration, at *field.Path) (errs field.ErrorList) {
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
	} else if t.Operator != v1.TolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	switch t.Operator {
	case "", v1.TolerationOpEqual:
		errs = append(errs, invalid(at.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value))...)
	case v1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs,
				field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []v1.TolerationOperator{
			v1.TolerationOpEqual,
			v1.TolerationOpExists,
		}))
	}
	if t.Effect != "" {
		errs = append(errs, oneOf(t.Effect, at.Child("effect"), v1.TaintEffectNoSchedule,
			v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		errs = append(errs,
			field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	return errs
}

func validateWeight(weight int32, at *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(at.Child("weight"), weight, "must be in the range 1-100")}
	}
	return nil
}

func validateNodeAffinity(a *v1.NodeAffinity, at *field.Path) (errs field.ErrorList) {
	if a == nil {
		return nil
	}
	if r := a.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		at := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(r.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(at, "must have at least one node selector term"))
		}
		for i, term := range r.NodeSelectorTerms {
			errs = append(errs, validateNodeTerm(term, true, at.Index(i))...)
		}
	}
	for i, p := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(p.Weight, at)...)
		errs = append(errs, validateNodeTerm(p.Preference, false, at.Child("preference"))...)
	}
	return errs
}

// validateNodeTerm checks one term about nodes. labels is set if the values must be valid as values of labels; those of
// a preference need not be.
func validateNodeTerm(t v1.NodeSelectorTerm, labels bool, at *field.Path) (errs field.ErrorList) {
	for i, r := range t.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		values := at.Child("values")
		switch n := len(r.Values); r.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if n == 0 {
				errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
			if n > 0 {
				errs = append(errs,
					field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
			}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if n != 1 {
				errs = append(errs,
					field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		errs = append(errs, metav1validation.ValidateLabelName(r.Key, at.Child("key"))...)
		for j, value := range r.Values {
			if labels {
				errs = append(errs, invalid(values.Index(j), value, validation.IsValidLabelValue(value))...)
			}
		}
	}
	for i, r := range t.MatchFields {
		at := at.Child("matchFields").Index(i)
		switch r.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(r.Values) != 1 {
				errs = append(errs, field.Required(at.Child("values"),
					"must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		if r.Key != metav1.ObjectNameField {
			errs = append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
			continue
		}
		for j, value := range r.Values {
			errs = append(errs,
				invalid(at.Child("values").Index(j), value, apivalidation.NameIsDNSSubdomain(value, false))...)
		}
	}
	return errs
}

// validatePodTerms checks terms about other pods.
func validatePodTerms(
	must []v1.PodAffinityTerm, rather []v1.WeightedPodAffinityTerm, at *field.Path,
) (errs field.ErrorList) {
	for i := range must {
		errs = append(errs,
			validatePodTerm(&must[i], at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))...)
	}
	for i := range rather {
		at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(rather[i].Weight, at)...)
		errs = append(errs, validatePodTerm(&rather[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(t *v1.PodAffinityTerm, at *field.Path) field.ErrorList {
	errs := validateSelector(t.LabelSelector, at.Child("labelSelector"))
	errs = append(errs, validateSelector(t.NamespaceSelector, at.Child("namespaceSelector"))...)
	for _, name := range t.Namespaces {
		errs = append(errs, invalid(at.Child("namespace"), name, apivalidation.ValidateNamespaceName(name, false))...)
	}
	errs = append(errs, validateLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)...)
	return append(errs, metav1validation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

// validateLabelKeys checks the keys of labels that other pods share with this
// one, or differ in. The API server adds both to the selector.
func validateLabelKeys(
	match, mismatch []string, selector *metav1.LabelSelector, at *field.Path,
) (errs field.ErrorList) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		at := at.Child(list.name)
		if len(list.keys) > 0 && selector == nil {
			errs = append(errs, field.Forbidden(at, "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range list.keys {
			errs = append(errs, metav1validation.ValidateLabelName(key, at.Index(i))...)
		}
	}
	for i, key := range match {
		at := at.Child("matchLabelKeys").Index(i)
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(at, key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
		if selector == nil {
			continue
		}
		// The API server itself adds an expression for the key: only a second one is an error.
		mentions, expressions := 0, 0
		if _, ok := selector.MatchLabels[key]; ok {
			mentions++
		}
		for _, e := range selector.MatchExpressions {
			if e.Key == key {
				mentions++
				expressions++
			}
		}
		if expressions > 0 && mentions > 1 {
			errs = append(errs, field.Invalid(at, key, "exists in both matchLabelKeys and labelSelector"))
		}
	}
	return errs
}

func validateSpread(constraints []v1.TopologySpreadConstraint, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i := range constraints {
		c, at := &constraints[i], at.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		errs = append(errs, required(at.Child("topologyKey"), c.TopologyKey)...)
		actions := []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}
		if !slices.Contains(actions, c.WhenUnsatisfiable) {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, actions))
		}
		key := fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)
		if seen[key] {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), key))
		}
		seen[key] = true
		if n := c.MinDomains; n != nil {
			if *n <= 0 {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *n, "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != v1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *n,
					"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+string(c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, anyOf(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"), v1.NodeInclusionPolicyIgnore,
			v1.NodeInclusionPolicyHonor)...)
		errs = append(errs, anyOf(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"), v1.NodeInclusionPolicyIgnore,
			v1.NodeInclusionPolicyHonor)...)
		errs = append(errs, validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
		errs = append(errs, validateSelector(c.LabelSelector, at.Child("labelSelector"))...)
	}
	return errs
}

// validateClaims checks the resource claims of a pod.
func validateClaims(claims []v1.PodResourceClaim, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, c := range claims {
		at := at.Index(i)
		errs = append(errs, required(at.Child("name"), c.Name)...)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		} else if c.Name != "" {
			errs = append(errs, invalid(at.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
		}
		seen[c.Name] = c.Name != ""
		switch count(c.ResourceClaimName != nil, c.ResourceClaimTemplateName != nil) {
		case 0:
			errs = append(errs,
				field.Invalid(at, c.Name, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		case 2:
			errs = append(errs,
				field.Invalid(at, c.Name,
					"at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		}
		for _, ref := range []struct {
			field string
			name  *string
		}{{"resourceClaimName", c.ResourceClaimName}, {"resourceClaimTemplateName", c.ResourceClaimTemplateName}} {
			if ref.name != nil {
				errs = append(errs,
					invalid(at.Child(ref.field), *ref.name, apivalidation.NameIsDNSSubdomain(*ref.name, false))...)
			}
		}
	}
	return errs
}

// standardFinalizers are those whose names have no domain.
var standardFinalizers = []string{"kubernetes", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

func validateFinalizers(finalizers []string, at *field.Path) (errs field.ErrorList) {
	for i, name := range finalizers {
		if !strings.Contains(name, "/") && !slices.Contains(standardFinalizers, name) {
			errs = append(errs,
				field.Invalid(at.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
