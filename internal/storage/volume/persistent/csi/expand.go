package csi

import (
	"context"
	"fmt"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/storage/volume/persistent"
)

// Expand calls NodeExpandVolume for a published volume.
func (p *Plugin) Expand(ctx context.Context, r persistent.Request, size resource.Quantity) error {
	s := sourceOf(r)
	sess, err := p.cfg.Drivers.openFor(s.driver, r.Migrated)
	if err != nil {
		return &persistent.ExpandError{Kind: persistent.Unavailable, Err: err}
	}
	defer sess.close()
	able, err := sess.can(ctx, canExpand)
	if err != nil {
		return fmt.Errorf("Expander.NodeExpand failed to check if node supports expansion : %w", err)
	}
	if !able {
		return &persistent.ExpandError{
			Kind: persistent.Unsupported,
			Err:  fmt.Errorf("NodeExpand is not supported by the CSI driver %s", s.driver),
		}
	}
	stages, err := sess.can(ctx, canStage)
	if err != nil {
		return err
	}
	ref := r.PV.Spec.CSI.NodeExpandSecretRef
	secrets, err := p.secretOf(ctx, ref)
	if err != nil {
		return fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", ref.Namespace, ref.Name,
			err)
	}
	capability, err := p.capability(ctx, sess, s, r.Pod)
	if err != nil {
		return err
	}
	req := &csiv1.NodeExpandVolumeRequest{
		VolumeId:         s.handle,
		CapacityRange:    &csiv1.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: capability,
		Secrets:          secrets,
		VolumePath:       p.target(r.Place),
	}
	if stages {
		req.StagingTargetPath = p.stagingPath(s, r.Name)
	}
	_, err = sess.node.NodeExpandVolume(ctx, req)
	switch {
	case err == nil:
		return nil
	case infeasible(err):
		return &persistent.ExpandError{
			Kind: persistent.Infeasible,
			Err:  fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err),
		}
	case status.Code(err) == codes.FailedPrecondition:
		return &persistent.ExpandError{
			Kind: persistent.InUse,
			Err:  fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err),
		}
	}
	return fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
}
