package csi

import (
	"context"
	"fmt"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/storage/volume/persistent"
)

// Expand has the driver grow what it made of a volume on the node: where it is
// staged, or where it is published by a driver that does not stage.
func (p *Plugin) Expand(ctx context.Context, r persistent.Request, size resource.Quantity, published bool) (bool, error) {
	s := sourceOf(r)
	sess, err := p.cfg.Drivers.open(s.driver)
	if err != nil {
		return false, fmt.Errorf("kubernetes.io/csi: expander.NodeExpand failed to get CSI client: %w", err)
	}
	defer sess.close()
	able, err := sess.can(ctx, canExpand)
	if err != nil || !able {
		return err == nil, err // there is nothing for the node to do
	}
	stages, err := sess.can(ctx, canStage)
	if err != nil {
		return false, err
	}
	if !stages && !published {
		return false, nil
	}
	secrets, err := p.secretOf(ctx, r.PV.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return false, err
	}
	capability, err := p.capability(ctx, sess, s, r.Pod)
	if err != nil {
		return false, err
	}
	req := &csiv1.NodeExpandVolumeRequest{VolumeId: s.handle, CapacityRange: &csiv1.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: capability, Secrets: secrets, VolumePath: p.target(r.Place)}
	if stages {
		req.StagingTargetPath = p.stagingPath(s, r.Name)
		if !published {
			req.VolumePath = req.StagingTargetPath
		}
	}
	_, err = sess.node.NodeExpandVolume(ctx, req)
	switch {
	case err == nil:
		return true, nil
	case infeasible(err):
		return false, fmt.Errorf("%w: %w", persistent.ErrInfeasible, err)
	}
	return false, outcome(err)
}
