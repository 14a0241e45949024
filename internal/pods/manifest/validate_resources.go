package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// validateResources checks quantities, and that no request is above its limit. badName
// returns the errors in the name of a resource.
func validateResources(
	r v1.ResourceRequirements, claims []v1.PodResourceClaim, badName resourceCheck, at *field.Path,
) (errs field.ErrorList) {
	compute, huge := false, false
	for list, amounts := range map[string]v1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			at, q := at.Child(list).Key(string(name)), amounts[name]
			errs = append(errs, badName(name, at)...)
			if q.Sign() < 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
			}
			if wholeOnly(name) && q.MilliValue()%1000 != 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
			}
			if isHugePages(name) && !ofWholePages(name, q) {
				errs = append(errs,
					field.Invalid(at, q.String(),
						fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
			}
			compute = compute || name == v1.ResourceCPU || name == v1.ResourceMemory
			huge = huge || isHugePages(name)
		}
	}
	if huge && !compute {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		req := r.Requests[name]
		limit, limited := r.Limits[name]
		switch at := at.Child("requests"); {
		case limited && exact(name) && req.Cmp(limit) != 0:
			errs = append(errs,
				field.Invalid(at, req.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && req.Cmp(limit) > 0:
			errs = append(errs,
				field.Invalid(at, req.String(),
					fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && exact(name):
			errs = append(errs,
				field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		}
	}
	return append(errs, validateClaimNames(r.Claims, claims, at.Child("claims"))...)
}

// validateClaimNames checks which of the pod's claims a container uses. It may
// use all of a claim, or requests of it, each once.
func validateClaimNames(used []v1.ResourceClaim, claims []v1.PodResourceClaim, at *field.Path) (errs field.ErrorList) {
	whole, parts := map[string]bool{}, map[string]bool{}
	requests := map[string]bool{} // claims of which a request is used
	for i, c := range used {
		at := at.Index(i)
		if c.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		if c.Request != "" && !whole[c.Name] {
			errs = append(errs, invalid(at.Child("request"), c.Request, validation.IsDNS1123Label(c.Request))...)
		}
		if key := c.Name + "/" + c.Request; whole[c.Name] || parts[key] || c.Request == "" && requests[c.Name] {
			errs = append(errs, field.Duplicate(at, key))
		} else if c.Request == "" {
			whole[c.Name] = true
		} else {
			parts[key], requests[c.Name] = true, true
		}
		if !slices.ContainsFunc(claims, func(p v1.PodResourceClaim) bool { return p.Name == c.Name }) {
			errs = append(errs, field.NotFound(at, c.Name))
		}
	}
	return errs
}

// quotaResources are the names without a domain that resources of containers and of quotas have.
var quotaResources = strings.Fields(`
	cpu memory ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage limits.cpu limits.memory
	limits.ephemeral-storage pods resourcequotas services replicationcontrollers secrets configmaps
	persistentvolumeclaims storage requests.storage services.nodeports services.loadbalancers`)

// resourceCheck returns the errors in the name of a resource.
type resourceCheck func(v1.ResourceName, *field.Path) field.ErrorList

func badResourceName(name v1.ResourceName, at *field.Path) field.ErrorList {
	s := string(name)
	if why := validation.IsQualifiedName(s); len(why) > 0 {
		return invalid(at, name, why)
	}
	if !strings.Contains(s, "/") && !slices.Contains(quotaResources, s) && !isHugePages(name) &&
		!strings.HasPrefix(s, "requests.hugepages-") {
		return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
	}
	return nil
}

// badContainerResource checks the name of a resource of a container.
func badContainerResource(name v1.ResourceName, at *field.Path) field.ErrorList {
	errs := badResourceName(name, at)
	switch {
	case !strings.Contains(string(name), "/") && !nativeResource(name):
		errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
	case foreignResource(name) && !pod.IsExtended(name):
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// badPodResource checks the name of a pod-level resource.
func badPodResource(name v1.ResourceName, at *field.Path) field.ErrorList {
	if errs := badResourceName(name, at); len(errs) > 0 {
		return errs
	}
	if !resource.IsSupportedPodLevelResource(name) {
		return field.ErrorList{field.NotSupported(at, name, sets.List(resource.SupportedPodLevelResources()))}
	}
	return nil
}

func nativeResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage ||
		isHugePages(name)
}

// foreignResource reports whether a resource has a domain other than that of Kubernetes.
func foreignResource(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// exact reports whether a resource cannot be overcommitted: request and limit have to be
// equal.
func exact(name v1.ResourceName) bool {
	return isHugePages(name) || foreignResource(name)
}

// wholeOnly reports whether the quantity of a resource has to be an integer.
func wholeOnly(name v1.ResourceName) bool {
	switch name {
	case "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
		"persistentvolumeclaims",
		"services.nodeports", "services.loadbalancers":
		return true
	}
	return pod.IsExtended(name)
}

// ofWholePages reports whether a quantity is a multiple of the huge page size in
// the resource's name.
func ofWholePages(name v1.ResourceName, q apiresource.Quantity) bool {
	size, err := apiresource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// validateOverhead checks the overhead of a pod.
func validateOverhead(overhead v1.ResourceList, at *field.Path) field.ErrorList {
	return validateResources(v1.ResourceRequirements{Limits: overhead}, nil, badContainerResource, at)
}

// validatePodResources checks the resources of a pod as a whole (KEP-2837), in
// themselves and against those of its containers: what the containers request
// together has to fit, and so does the limit of each.
func validatePodResources(p *v1.Pod, spec *field.Path) field.ErrorList {
	r, at := p.Spec.Resources, spec.Child("resources")
	if p.Spec.OS != nil && p.Spec.OS.Name == v1.Windows {
		return field.ErrorList{field.Forbidden(at, "may not be set for a windows pod")}
	}
	amounts := *r
	amounts.Claims = nil
	errs := validateResources(amounts, nil, badPodResource, at)
	if r.Claims != nil {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	fits := func(list string, have, together v1.ResourceList, only func(v1.ResourceName) bool) {
		for _, name := range slices.Sorted(maps.Keys(together)) {
			if has, ok := have[name]; ok && only(name) {
				if need := together[name]; need.Cmp(has) > 0 {
					errs = append(errs, field.Invalid(at.Child(list).Key(string(name)), has.String(),
						fmt.Sprintf("must be greater than or equal to aggregate container %s of %s", list,
							need.String())))
				}
			}
		}
	}
	every := func(v1.ResourceName) bool { return true }
	fits("requests", r.Requests, resource.AggregateContainerRequests(p, resource.PodResourcesOptions{}), every)
	fits("limits", r.Limits, resource.AggregateContainerLimits(p, resource.PodResourcesOptions{}), isHugePages)
	for i, c := range p.Spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			limit := c.Resources.Limits[name]
			if most, ok := r.Limits[name]; ok && limit.Cmp(most) > 0 {
				errs = append(errs,
					field.Invalid(spec.Child("containers").Index(i).Child("resources", "limits").Key(string(name)),
						limit.String(),
						fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
	return errs
}
