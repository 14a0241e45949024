package device

import (
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// Quantities returns counts of devices as a resource list.
func Quantities(of map[string]int) v1.ResourceList {
	list := v1.ResourceList{}
	for name, n := range of {
		list[v1.ResourceName(name)] = *apiresource.NewQuantity(int64(n), apiresource.DecimalSI)
	}
	return list
}
