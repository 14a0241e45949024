package topology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Provider allocates one kind of resource. It is safe for concurrent use, and persists its allocations. Only Contribute
// may block.
type Provider interface {
	// Hints returns the NUMA affinities with which the container's resources could be allocated. It returns nil if the
	// container requests none. For resources that are allocated already it returns their current affinity.
	Hints(p *v1.Pod, c *v1.Container) numa.Hints
	// PodHints is Hints for all containers of the pod together.
	PodHints(p *v1.Pod) numa.Hints
	// Allocate allocates the container's resources, if possible from the nodes of at. Existing allocations are kept.
	// The pod is rejected with the reason of a [pod.Rejection], or with UnexpectedAdmissionError for any other error.
	Allocate(p *v1.Pod, c *v1.Container, at numa.Hint) error
	// Contribute returns what is contributed to the container when it is created.
	Contribute(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.Contribution, error)
	// Release releases all allocations of the pod. It does nothing for a pod without any.
	Release(types.UID)
	// Holders returns the pods with allocations.
	Holders() []types.UID
}

// HealthReporter is a Provider that knows the health of its resources.
type HealthReporter interface {
	// ResourceHealth returns the health of the container's resources, ordered by name. It must not block.
	ResourceHealth(uid types.UID, container string) []v1.ResourceStatus
}

// Awaiter is a Provider that may have to wait for others before it can allocate.
type Awaiter interface {
	// LateForRunning returns what a pod with a sandbox or containers has to wait for before its containers start.
	LateForRunning(*v1.Pod) pod.Late
}

// Confirmer is a Provider that has to complete allocations outside of the agent before a pod may start.
type Confirmer interface {
	// Confirmed reports whether all allocations of the pod are complete.
	Confirmed(p *v1.Pod) bool
	// Confirm completes the allocations of the pod. An error rejects the pod.
	Confirm(ctx context.Context, p *v1.Pod) error
}
