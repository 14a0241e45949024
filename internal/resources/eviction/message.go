package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// evictionMessage returns the eviction message, for the status and the event, and the annotations with the containers
// that exceed their requests.
func evictionMessage(m Met, c Candidate) (message string, annotations map[string]string) {
	scarce := signalInfo[m.Signal].resource
	message = fmt.Sprintf(messageLow, scarce) +
		fmt.Sprintf(messageThreshold, m.Least.quantity(m.Capacity), resource.NewQuantity(m.Available, formatOf(scarce)))
	annotations = map[string]string{}
	if used, asked, over := overAsPod(c, scarce); over {
		message += fmt.Sprintf(messagePod, c.Pod.Name, used, asked, scarce)
		annotations[annotationPod], annotations[annotationPodUsage] = c.Pod.Name, used.String()
	}
	var names, amounts []string
	for _, u := range c.Use.Containers {
		kind, spec, ok := pod.Find(c.Pod, u.Name)
		used, known := u.amount(scarce)
		if !ok || !known || kind == pod.Ephemeral { // an ephemeral container cannot have requests
			continue
		}
		asked := spec.Resources.Requests[scarce]
		if used.Cmp(asked) > 0 {
			message += fmt.Sprintf(messageContainer, u.Name, used, &asked, scarce)
			names, amounts = append(names, u.Name), append(amounts, used.String())
		}
	}
	annotations[annotationContainers] = strings.Join(names, ",")
	annotations[annotationContainerUsage] = strings.Join(amounts, ",")
	annotations[annotationResource] = string(scarce)
	return message, annotations
}

// formatOf returns the quantity format of a resource: decimal for countable ones.
func formatOf(scarce v1.ResourceName) resource.Format {
	if scarce == resourceInodes || scarce == resourcePIDs {
		return resource.DecimalSI
	}
	return resource.BinarySI
}

// overAsPod reports whether a pod with pod-level requests exceeds its request of a resource.
func overAsPod(c Candidate, scarce v1.ResourceName) (used, asked *resource.Quantity, over bool) {
	if scarce != v1.ResourceMemory || c.Use.Memory == nil || !resourcehelper.IsPodLevelRequestsSet(c.Pod) {
		return nil, nil, false
	}
	q, set := c.Pod.Spec.Resources.Requests[scarce]
	used = resource.NewQuantity(int64(*c.Use.Memory), resource.BinarySI)
	return used, &q, set && used.Cmp(q) > 0
}

// amount returns the container's usage of the starved resource.
func (u ContainerUse) amount(scarce v1.ResourceName) (*resource.Quantity, bool) {
	switch {
	case scarce == v1.ResourceMemory && u.Memory != nil:
		return resource.NewQuantity(int64(*u.Memory), resource.BinarySI), true
	case scarce == v1.ResourceEphemeralStorage && u.Layer != nil && u.Logs != nil:
		return resource.NewQuantity(int64(u.Layer.Bytes+u.Logs.Bytes), resource.BinarySI), true
	}
	return nil, false
}
