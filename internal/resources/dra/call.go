package dra

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson/internal/pods/pod"
)

// ClaimRef identifies a ResourceClaim in calls to a driver.
type ClaimRef struct{ Namespace, Name, UID string }

func (c ClaimRef) String() string { return c.Namespace + "/" + c.Name }

func (c ClaimRef) message() *drav1.Claim {
	return &drav1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: c.UID}
}

// prepare calls NodePrepareResources of a driver for a claim.
func (d *Drivers) prepare(ctx context.Context, driver string, c ClaimRef) ([]*drav1.Device, error) {
	i, err := d.find(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	resp, err := i.client.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{
		Claims: []*drav1.Claim{c.message()},
	})
	d.metrics.observeCall(driver, i.prefix+"NodePrepareResources", status.Code(err), time.Since(began))
	if err != nil {
		return nil, fmt.Errorf("NodePrepareResources: %w", err)
	}
	switch r, ok := resp.GetClaims()[c.UID]; {
	case !ok || r == nil:
		return nil, pod.ShowAs("NodePrepareResources skipped 1 ResourceClaims",
			fmt.Errorf("NodePrepareResources skipped "+
				"ResourceClaim %s", c.Name))
	case r.GetError() != "":
		return nil, fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", c.Name, r.GetError())
	case len(r.GetDevices()) > maxDevices:
		return nil, fmt.Errorf("NodePrepareResources gave %d devices for ResourceClaim %s", len(r.GetDevices()), c.Name)
	default:
		return r.GetDevices(), nil
	}
}

// unprepare calls NodeUnprepareResources of a driver for a claim. The driver may not have prepared it.
func (d *Drivers) unprepare(ctx context.Context, driver string, c ClaimRef) error {
	i, err := d.find(driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	resp, err := i.client.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{
		Claims: []*drav1.Claim{c.message()},
	})
	d.metrics.observeCall(driver, i.prefix+"NodeUnprepareResources", status.Code(err), time.Since(began))
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	r, ok := resp.GetClaims()[c.UID]
	switch {
	case !ok:
		return pod.ShowAs("NodeUnprepareResources skipped 1 ResourceClaims",
			fmt.Errorf("NodeUnprepareResources skipped ResourceClaim %s", c.Name))
	case r.GetError() != "":
		return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", c.Name, r.GetError())
	}
	return nil
}
