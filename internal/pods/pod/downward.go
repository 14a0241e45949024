package pod

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// FieldValue is the value of one field of the pod as a fieldRef shows it, for the fields that the specification holds:
// metadata and the names the pod was bound to. Labels and annotations as a whole are sorted lines key="escaped value".
// The caller handles fields of the status, such as addresses.
func FieldValue(p *v1.Pod, fieldPath string) (string, error) {
	if path, key, ok := subscript(fieldPath); ok {
		switch path {
		case "metadata.annotations":
			// Annotation keys are compared without case, so upper case is valid.
			if why := validation.IsQualifiedName(strings.ToLower(key)); len(why) > 0 {
				return "", fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(why, ";"))
			}
			return p.Annotations[key], nil
		case "metadata.labels":
			if why := validation.IsQualifiedName(key); len(why) > 0 {
				return "", fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(why, ";"))
			}
			return p.Labels[key], nil
		default:
			return "", fmt.Errorf("fieldPath %q does not support subscript", fieldPath)
		}
	}
	switch fieldPath {
	case "metadata.annotations":
		return mapLines(p.Annotations), nil
	case "metadata.labels":
		return mapLines(p.Labels), nil
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
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", fieldPath)
}

// subscript splits metadata.labels['key'] into path and key.
func subscript(fieldPath string) (path, key string, ok bool) {
	inner, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return fieldPath, "", false
	}
	path, key, ok = strings.Cut(inner, "['")
	if !ok || path == "" {
		return fieldPath, "", false
	}
	return path, key, true
}

func mapLines(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// ResourceValue is the value of one resource of a container as a resourceFieldRef shows
// it: the quantity divided by the divisor (by default one), rounded up. The container is
// the one that sel names, or the given one. Without a limit of the container it is the
// pod-level limit, else the node's allocatable.
func ResourceValue(
	p *v1.Pod, container string, sel *v1.ResourceFieldSelector, allocatable v1.ResourceList,
) (string, error) {
	if sel.ContainerName != "" {
		container = sel.ContainerName
	}
	_, c, ok := Find(p, container)
	if !ok {
		return "", fmt.Errorf("container %s not found", container)
	}
	name, ofLimit := strings.CutPrefix(sel.Resource, "limits.")
	if !ofLimit {
		if name, ok = strings.CutPrefix(sel.Resource, "requests."); !ok {
			return "", fmt.Errorf("unsupported container resource : %v", sel.Resource)
		}
	}
	rn := v1.ResourceName(name)
	bounded := rn == v1.ResourceCPU || rn == v1.ResourceMemory || rn == v1.ResourceEphemeralStorage
	if !bounded && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
		return "", fmt.Errorf("unsupported container resource : %v", sel.Resource)
	}
	q := c.Resources.Requests[rn]
	if ofLimit {
		q = c.Resources.Limits[rn]
		if q.IsZero() && bounded {
			q = boundOf(p, rn, allocatable)
		}
	}
	divisor := sel.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := q.Value(), divisor.Value()
	if rn == v1.ResourceCPU {
		n, d = q.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(n)/float64(d))), 10), nil
}

// boundOf is the effective limit of a container without one: the pod-level limit, even if
// it exceeds the node's allocatable, else allocatable.
func boundOf(p *v1.Pod, rn v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if p.Spec.Resources != nil {
		if q, ok := p.Spec.Resources.Limits[rn]; ok && !q.IsZero() {
			return q
		}
	}
	return allocatable[rn]
}
