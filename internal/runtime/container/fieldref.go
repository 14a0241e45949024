package container

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// fieldValue returns the value of a fieldRef in an environment: a field of the pod, or an address
// that only the node knows.
func fieldValue(p *v1.Pod, ref *v1.ObjectFieldSelector, podIPs []string, node NodeFacts) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	switch ref.FieldPath {
	case "spec.host": // from API versions before v1
		return p.Spec.NodeName, nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	case "status.hostIP", "status.hostIPs":
		if len(node.HostIPs) == 0 { // the cloud controller manager has not set them yet
			return "", fmt.Errorf("host IP unknown; known addresses: %v", node.Addresses)
		}
		if ref.FieldPath == "status.hostIP" {
			return node.HostIPs[0], nil
		}
		return strings.Join(node.HostIPs, ","), nil
	case "metadata.labels", "metadata.annotations":
		return "", fmt.Errorf("unsupported fieldPath: %s", ref.FieldPath) // whole maps are only available as files
	}
	return pod.FieldValue(p, ref.FieldPath)
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
