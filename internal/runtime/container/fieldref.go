package container

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// fieldValue is what a fieldRef of an environment stands for.
func fieldValue(p *v1.Pod, ref *v1.ObjectFieldSelector, podIPs []string, node NodeFacts) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	if path, key, ok := subscript(ref.FieldPath); ok {
		switch path {
		case "metadata.labels":
			return p.Labels[key], nil
		case "metadata.annotations":
			return p.Annotations[key], nil
		}
		return "", fmt.Errorf("field path %q does not support subscript", ref.FieldPath)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "spec.host": // from before v1
		return p.Spec.NodeName, nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	case "status.hostIP":
		return first(node.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(node.HostIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", ref.FieldPath)
}

// subscript splits metadata.labels['x'] into metadata.labels and x.
func subscript(path string) (before, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	before, key, ok = strings.Cut(rest, "['")
	return before, key, ok && before != ""
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
