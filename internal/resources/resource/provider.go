package resource

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// Provider hands out one kind of thing. It is safe for concurrent use, and what it
// has handed out it writes down. Only Contribute may block.
type Provider interface {
	// Hints tells where what the container asks for could be had; nil if it asks for
	// nothing. What it has already is where it is.
	Hints(p *v1.Pod, c *v1.Container) topology.Hints
	// PodHints tells the same of all containers of the pod together.
	PodHints(p *v1.Pod) topology.Hints
	// Assign reserves what the container asks for, from the nodes of at as far as
	// they have it. What is reserved already stays. A [pod.Refusal] says with which
	// reason the pod is refused; any other error has a reason of its own.
	Assign(p *v1.Pod, c *v1.Container, at topology.Hint) error
	// Contribute is what the container is given of it.
	Contribute(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.Contribution, error)
	// Release gives back all that the pod has. Nothing to give back is no error.
	Release(types.UID)
	// Holders are the pods that have something.
	Holders() []types.UID
}

// Teller is a Provider that knows how well what it has handed out is.
type Teller interface {
	// ResourceHealth tells it of what the container has, in the order of names. It
	// must not block.
	ResourceHealth(uid types.UID, container string) []v1.ResourceStatus
}

// Awaiter is a Provider that may not know yet what it can allocate.
type Awaiter interface {
	// LateForRunning returns what a pod with a sandbox or containers has to wait for before its containers start.
	LateForRunning(*v1.Pod) pod.Late
}

// Confirmer is a Provider that has to ask somebody outside before a pod may start.
type Confirmer interface {
	// Confirmed reports whether nothing is left to be asked for the pod.
	Confirmed(p *v1.Pod) bool
	// Confirm makes good what Assign has reserved for the pod. An error refuses it.
	Confirm(ctx context.Context, p *v1.Pod) error
}
