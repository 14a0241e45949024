package client

import (
	"context"
	"fmt"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// PodStatuses writes statuses of pods.
type PodStatuses struct{ Pods }

// PatchPodStatus applies a strategic merge patch to the status of a pod.
func (p PodStatuses) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	return p.Patch(ctx, namespace, name, types.StrategicMergePatchType, patch, "status")
}

// Reviews creates the reviews that authenticate and authorize requests to the agent.
type Reviews struct{ *Client }

// CreateTokenReview creates a TokenReview. Its status has the user of the token.
func (r Reviews) CreateTokenReview(ctx context.Context, t *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	return r.ReviewToken(ctx, t)
}

// CreateSubjectAccessReview creates a SubjectAccessReview. Its status shows whether the user is authorized.
func (r Reviews) CreateSubjectAccessReview(
	ctx context.Context, s *authzv1.SubjectAccessReview,
) (*authzv1.SubjectAccessReview, error) {
	return r.ReviewAccess(ctx, s)
}

// VolumeClaims reads claims and their volumes.
type VolumeClaims struct{ *Client }

// Claim reads a PersistentVolumeClaim.
func (c VolumeClaims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return c.PersistentVolumeClaims.Get(ctx, namespace, name)
}

// Volume reads a PersistentVolume.
func (c VolumeClaims) Volume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return c.PersistentVolumes.Get(ctx, "", name)
}

// PatchClaimStatus applies a strategic merge patch to the status of a claim.
func (c VolumeClaims) PatchClaimStatus(
	ctx context.Context, namespace, name string, patch []byte,
) (*v1.PersistentVolumeClaim, error) {
	return c.PersistentVolumeClaims.Patch(ctx, namespace, name, types.StrategicMergePatchType, patch, "status")
}

// OneNode is this node and its CSINode.
type OneNode struct {
	*Client
	Name string
}

// Node reads the Node.
func (n OneNode) Node(ctx context.Context) (*v1.Node, error) { return n.Nodes.Get(ctx, n.Name) }

// PatchNode applies a strategic merge patch to the Node.
func (n OneNode) PatchNode(ctx context.Context, patch []byte) error {
	_, err := n.Nodes.Patch(ctx, n.Name, patch)
	return err
}

// CSINode reads the CSINode.
func (n OneNode) CSINode(ctx context.Context) (*storagev1.CSINode, error) {
	return n.CSINodes.Get(ctx, "", n.Name)
}

// CreateCSINode creates the CSINode.
func (n OneNode) CreateCSINode(ctx context.Context, obj *storagev1.CSINode) error {
	_, err := n.CSINodes.Create(ctx, "", obj)
	return err
}

// UpdateCSINode replaces the CSINode.
func (n OneNode) UpdateCSINode(ctx context.Context, obj *storagev1.CSINode) error {
	_, err := n.CSINodes.Update(ctx, "", n.Name, obj)
	return err
}

// Delete deletes the ResourceSlices of a DRA driver on this node, or of all drivers if driver is empty.
func (n OneNode) Delete(ctx context.Context, driver string) error {
	of := fields.Set{SliceNode: n.Name}
	if driver != "" {
		of[SliceDriver] = driver
	}
	err := n.DeleteResourceSlices(ctx, of)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ResourceSlices: %w", err)
	}
	return nil
}

// ServiceAccount reads a service account.
func (c *Client) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	var sa v1.ServiceAccount
	err := c.Core().Get().Namespace(namespace).Resource("serviceaccounts").Name(name).Do(ctx).Into(&sa)
	return &sa, err
}
