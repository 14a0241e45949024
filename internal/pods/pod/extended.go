package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// IsExtended reports whether a resource is an extended one, which a device plugin or an
// administrator named: the name has a domain, which is not Kubernetes' own, and a quota for it
// can be named.
func IsExtended(resource v1.ResourceName) bool {
	name := string(resource)
	if !strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/") || strings.HasPrefix(name, "requests.") {
		return false
	}
	return len(validation.IsQualifiedName("requests."+name)) == 0
}
