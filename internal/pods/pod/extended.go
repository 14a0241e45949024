package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// IsExtended reports whether a resource is an extended one, of a device plugin or an
// administrator: its name has a domain other than that of Kubernetes, and is valid with
// the prefix of a quota.
func IsExtended(resource v1.ResourceName) bool {
	name := string(resource)
	if !strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/") ||
		strings.HasPrefix(name, "requests.") {
		return false
	}
	return len(validation.IsQualifiedName("requests."+name)) == 0
}
