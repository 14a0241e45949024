package csi

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

// AttachFailure reads the VolumeAttachment. If the node has reached its volume limit, waiting does
// not help: the pod is rejected, so that it can be scheduled elsewhere. This only applies if the
// CSIDriver sets nodeAllocatableUpdatePeriodSeconds (KEP-4876). For other drivers the limit in the
// CSINode would not be updated, and the scheduler would place the next pod here as well.
func (p *Plugin) AttachFailure(ctx context.Context, s persistent.Spec) error {
	if p.cfg.API == nil || s.PV == nil {
		return nil
	}
	src := s.PV.Spec.CSI
	a, err := p.cfg.API.VolumeAttachment(ctx, AttachmentName(src.VolumeHandle, src.Driver, p.cfg.Node))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil // does not exist yet, or the node is not authorized to read it
	case err != nil:
		return fmt.Errorf("read attachment of volume %s: %w", s.Name, err)
	case !exhausted(a):
		return nil
	}
	if d, err := p.driver(ctx, src.Driver); err != nil || d == nil ||
		ptr.Deref(d.Spec.NodeAllocatableUpdatePeriodSeconds, 0) == 0 {
		return err
	}
	p.cfg.Exhausted(src.Driver)
	return &volume.AttachLimit{Cause: a.Status.AttachError.Message}
}

// exhausted reports whether the attachment failed because the node has too many volumes of the
// driver.
func exhausted(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return !a.Status.Attached && e != nil && e.ErrorCode != nil && codes.Code(*e.ErrorCode) == codes.ResourceExhausted
}
