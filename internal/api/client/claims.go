package client

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// claimGroup is the API group of ResourceClaims and ResourceSlices.
var claimGroup = schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}

// Field selectors of ResourceSlices.
const (
	SliceNode   = "spec.nodeName"
	SliceDriver = "spec.driver"
)

// ResourceClaim is the part of a ResourceClaim that the agent reads. The API's own type would link the code for all
// types of its group, 300 KiB of the binary.
type ResourceClaim struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            ResourceClaimStatus `json:"status"`
}

// ResourceClaimStatus is the status of a ResourceClaim.
type ResourceClaimStatus struct {
	// Allocation is nil until the claim is allocated.
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

// ResourceClaim gets a ResourceClaim.
func (c *Client) ResourceClaim(ctx context.Context, namespace, name string) (*ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := c.claims.Get().Namespace(namespace).Resource("resourceclaims").Name(name).SetHeader("Accept",
		"application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var claim ResourceClaim
	if err := json.Unmarshal(text, &claim); err != nil {
		return nil, fmt.Errorf("decode ResourceClaim %s/%s: %w", namespace, name, err)
	}
	return &claim, nil
}

// DeleteResourceSlices deletes the ResourceSlices that match the selector.
func (c *Client) DeleteResourceSlices(ctx context.Context, of fields.Set) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.claims.Delete().Resource("resourceslices").Param("fieldSelector", of.AsSelector().String()).Do(ctx).Error()
}
