package desired

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/resource"
)

// validatePodResources checks the resources of a pod as a whole (KEP-2837), in
// themselves and against those of its containers: what the containers request
// together has to fit, and so does the limit of each.
func validatePodResources(p *v1.Pod, spec *field.Path) field.ErrorList {
	r, at := p.Spec.Resources, spec.Child("resources")
	errs := validateResources(*r, at)
	for list, amounts := range map[string]v1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			if !resource.IsSupportedPodLevelResource(name) {
				errs = append(errs, field.NotSupported(at.Child(list).Key(string(name)), name, sets.List(resource.SupportedPodLevelResources())))
			}
		}
	}
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	together := resource.AggregateContainerRequests(p, resource.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(together)) {
		if have, ok := r.Requests[name]; ok {
			if need := together[name]; need.Cmp(have) > 0 {
				errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), have.String(),
					fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", need.String())))
			}
		}
	}
	for list, containers := range map[string][]v1.Container{"initContainers": p.Spec.InitContainers, "containers": p.Spec.Containers} {
		for i, c := range containers {
			for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
				limit := c.Resources.Limits[name]
				if most, ok := r.Limits[name]; ok && limit.Cmp(most) > 0 {
					errs = append(errs, field.Invalid(spec.Child(list).Index(i).Child("resources", "limits").Key(string(name)), limit.String(),
						fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
				}
			}
		}
	}
	return errs
}
