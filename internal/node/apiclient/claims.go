package apiclient

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// claimGroup is where claims of devices are, and what drivers offer.
var claimGroup = schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}

// Fields by which offers can be selected.
const (
	SliceNode   = "spec.nodeName"
	SliceDriver = "spec.driver"
)

// ResourceClaim is what the agent reads of a claim of devices. The API's own type
// brings the code for all types of its group, 300 KiB of the program.
type ResourceClaim struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            ResourceClaimStatus `json:"status"`
}

// ResourceClaimStatus tells who may use a claim, and of what.
type ResourceClaimStatus struct {
	// Allocation is nil as long as nobody has chosen devices.
	Allocation *struct {
		Devices struct {
			Results []struct {
				Driver string `json:"driver"`
			} `json:"results"`
		} `json:"devices"`
	} `json:"allocation"`
	ReservedFor []struct {
		UID types.UID `json:"uid"`
	} `json:"reservedFor"`
}

// ResourceClaim reads a claim.
func (c *Client) ResourceClaim(ctx context.Context, namespace, name string) (*ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	text, err := c.claims.Get().Namespace(namespace).Resource("resourceclaims").Name(name).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var claim ResourceClaim
	if err := json.Unmarshal(text, &claim); err != nil {
		return nil, fmt.Errorf("decode ResourceClaim %s/%s: %w", namespace, name, err)
	}
	return &claim, nil
}

// DeleteResourceSlices removes the offers that match the selector.
func (c *Client) DeleteResourceSlices(ctx context.Context, of fields.Set) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return c.claims.Delete().Resource("resourceslices").Param("fieldSelector", of.AsSelector().String()).Do(ctx).Error()
}
