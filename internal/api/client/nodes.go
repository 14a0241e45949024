package client

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Nodes are the nodes at the API server.
type Nodes struct{ r Resource[*corev1.Node] }

// Get gets a node.
func (n Nodes) Get(ctx context.Context, name string) (*corev1.Node, error) {
	return n.r.Get(ctx, "", name)
}

// Create creates a node.
func (n Nodes) Create(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	return n.r.Create(ctx, "", node)
}

// Patch applies a strategic merge patch to metadata and specification.
func (n Nodes) Patch(ctx context.Context, name string, patch []byte) (*corev1.Node, error) {
	return n.r.Patch(ctx, "", name, types.StrategicMergePatchType, patch)
}

// PatchStatus applies a strategic merge patch to the status.
func (n Nodes) PatchStatus(ctx context.Context, name string, patch []byte) (*corev1.Node, error) {
	return n.r.Patch(ctx, "", name, types.StrategicMergePatchType, patch, "status")
}

// ListWatch returns a source for a reflector over the node with this name.
func (n Nodes) ListWatch(name string) *cache.ListWatch {
	return n.r.ListWatch("", fields.OneTermEqualSelector("metadata.name", name))
}
