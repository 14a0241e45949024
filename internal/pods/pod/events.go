package pod

import v1 "k8s.io/api/core/v1"

// Events records Kubernetes events. Recording never blocks and never fails for the caller;
// without an API server events go to the log.
type Events interface {
	// Pod records an event about p, or about one of its containers when
	// container is not empty. eventType is Normal or Warning.
	Pod(p *v1.Pod, container, eventType, reason, message string)
	// Node records an event about the node.
	Node(eventType, reason, message string)
}
