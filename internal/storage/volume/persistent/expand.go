package persistent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// Expander is a Plugin whose volumes can be expanded while they are published.
type Expander interface {
	// Expand makes the new size available on the node. It returns an ExpandError if the kind of
	// failure matters.
	Expand(ctx context.Context, r Request, size resource.Quantity) error
}

// ExpandError is a failure to expand a volume.
type ExpandError struct {
	Kind ExpandKind
	Err  error
}

func (e *ExpandError) Error() string { return e.Err.Error() }
func (e *ExpandError) Unwrap() error { return e.Err }

// ExpandKind classifies failures that need more than a retry.
type ExpandKind int

// Kinds of failures.
const (
	_           ExpandKind = iota
	Infeasible             // can never succeed with this size
	Unsupported            // the plugin does not expand on nodes
	InUse                  // not possible while the volume is in use
	Unavailable            // the driver is not available; nothing was tried
)

func isExpandError(err error, kind ExpandKind) bool {
	var e *ExpandError
	return errors.As(err, &e) && e.Kind == kind
}

// growth is the state of a volume's expansion on this node. Guarded by Volumes.mu.
type growth struct {
	size   resource.Quantity // on this node; zero until the claim was read
	inUse  bool              // cannot be expanded while in use; not retried
	failed bool              // the last expansion failed
}

// nodeExpansionNotRequired is the annotation of a claim whose volume needs no expansion on nodes.
const nodeExpansionNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// permission is whether the node may expand a volume.
type permission int

const (
	notNow     permission = iota // the controller has to act first, or the size is infeasible
	isExpanded                   // the claim has the size, and no node has to act
	expandToo                    // the claim has the size, but every node has to expand
	expandNow                    // this node has to expand
)

// permissionOf returns what the status of the claim permits.
func permissionOf(c *v1.PersistentVolumeClaim, size resource.Quantity) permission {
	known := c.Status.Capacity[v1.ResourceStorage]
	switch resizeStatus(c) {
	case "":
		if known.Cmp(size) < 0 {
			return notNow
		}
		_, notRequired := c.Annotations[nodeExpansionNotRequired]
		if slices.Contains(c.Spec.AccessModes, v1.ReadWriteMany) && !notRequired {
			return expandToo
		}
		return isExpanded
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return expandNow
	}
	return notNow
}

// recoverable reports whether the resize controller records the state of the expansion in the claim
// (RecoverVolumeExpansionFailure). Older ones do not.
func recoverable(c *v1.PersistentVolumeClaim) bool {
	return resizeStatus(c) != "" || c.Status.AllocatedResources != nil
}

// expandAtMount expands a volume that was just published, if its size differs from the claim's
// status.
func (v *Volumes) expandAtMount(ctx context.Context, plugin Plugin, d *device, r Request) error {
	e, ok := plugin.(Expander)
	if !ok || r.Claim == nil {
		return nil
	}
	want, known := r.PV.Spec.Capacity[v1.ResourceStorage], r.Claim.Status.Capacity[v1.ResourceStorage]
	if r.ReadOnly {
		if known.Cmp(want) < 0 {
			v.eventOfClaim(r, v1.EventTypeWarning, pod.EventFSResizeFailed, "MountVolume.NodeExpandVolume failed",
				"requested read-only file system")
		}
		return nil
	}
	v.initSize(d, known)
	if known.Cmp(want) >= 0 {
		return nil
	}
	if err := v.grow(ctx, e, d, r, want); err != nil {
		f := &volume.Failure{
			Step:   "MountVolume.Setup",
			While:  "expanding volume",
			Volume: r.Name,
			Reason: pod.EventFailedMount,
			Err:    err,
		}
		if r.Block {
			f.Step, f.Reason = "MapVolume.MarkVolumeAsMounted", pod.EventFailedMapVolume
		}
		return f
	}
	return nil
}

// expandInUse expands a published volume whose PersistentVolume is larger than its size on this
// node. It returns the operation if one was tried.
func (v *Volumes) expandInUse(ctx context.Context, plugin Plugin, d *device, r Request) (volume.Operation, error) {
	e, ok := plugin.(Expander)
	if !ok || r.Claim == nil || r.ReadOnly {
		return volume.Nothing, nil
	}
	want, known := r.PV.Spec.Capacity[v1.ResourceStorage], r.Claim.Status.Capacity[v1.ResourceStorage]
	v.initSize(d, known)
	v.mu.Lock()
	has := d.growth
	v.mu.Unlock()
	if has.inUse || has.size.IsZero() || want.Cmp(has.size) <= 0 {
		return volume.Nothing, nil
	}
	if err := v.grow(ctx, e, d, r, want); err != nil {
		return volume.Resized, &volume.Failure{
			Step:   "NodeExpandVolume.NodeExpandVolume",
			Volume: r.Name,
			Reason: pod.EventResizeFailed,
			Err:    err,
		}
	}
	return volume.Resized, nil
}

// initSize records the volume's size on the node if none is known.
func (v *Volumes) initSize(d *device, size resource.Quantity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d.growth.size.IsZero() {
		d.growth.size = size
	}
}

// grow expands the volume if the status of the claim permits it. An expansion that is skipped
// without an error is retried when the claim is read again.
func (v *Volumes) grow(ctx context.Context, e Expander, d *device, r Request, want resource.Quantity) error {
	if !recoverable(r.Claim) {
		return v.growWithoutRecovery(ctx, e, d, r, want)
	}
	size := r.Claim.Status.AllocatedResources[v1.ResourceStorage]
	may := permissionOf(r.Claim, size)
	claim := r.Claim
	switch may {
	case notNow:
		return nil
	case isExpanded:
		v.setSize(d, size)
		return nil
	case expandNow:
		var err error
		if claim, err = v.patchClaim(ctx, claim, true, inProgress); err != nil {
			return err
		}
	}
	err := e.Expand(ctx, r, size)
	switch {
	case isExpandError(err, Unsupported) && may == expandToo:
		v.setSize(d, size)
		return nil
	case err != nil:
		if !isExpandError(err, Unavailable) {
			v.recordFailure(ctx, d, claim, size, err)
		}
		if isExpandError(err, InUse) {
			v.stopExpanding(d, r, err)
			return nil
		}
		return err
	}
	v.eventOfClaim(r, v1.EventTypeNormal, pod.EventFSResized, "MountVolume.NodeExpandVolume succeeded",
		r.Pod.Spec.NodeName)
	if may == expandNow {
		if _, err := v.patchClaim(ctx, claim, true,
			func(c *v1.PersistentVolumeClaim) { finished(c, size) }); err != nil {
			return fmt.Errorf("mountVolume.NodeExpandVolume update pvc status failed: %w", err)
		}
	}
	v.setSize(d, size)
	return nil
}

// growWithoutRecovery expands a volume whose controller records no state in the claim.
func (v *Volumes) growWithoutRecovery(
	ctx context.Context, e Expander, d *device, r Request, want resource.Quantity,
) error {
	err := e.Expand(ctx, r, want)
	switch {
	case isExpandError(err, Unsupported):
		v.setSize(d, want)
		return nil
	case isExpandError(err, InUse):
		v.stopExpanding(d, r, err)
		return nil
	case err != nil:
		return err
	}
	v.eventOfClaim(r, v1.EventTypeNormal, pod.EventFSResized, "MountVolume.NodeExpandVolume succeeded",
		r.Pod.Spec.NodeName)
	if known := r.Claim.Status.Capacity[v1.ResourceStorage]; known.Cmp(want) < 0 {
		if _, err := v.patchClaim(ctx, r.Claim, true,
			func(c *v1.PersistentVolumeClaim) { finished(c, want) }); err != nil {
			return fmt.Errorf("mountVolume.NodeExpandVolume update PVC status failed : %w", err)
		}
	}
	v.setSize(d, want)
	return nil
}

// setSize records the volume's size on the node.
func (v *Volumes) setSize(d *device, size resource.Quantity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.growth.size = size
}

// stopExpanding records that the volume cannot be expanded while it is in use.
func (v *Volumes) stopExpanding(d *device, r Request, err error) {
	v.cfg.Log.Warn("volume cannot be expanded while it is in use", "volumeName", r.Name, "err", err)
	v.mu.Lock()
	defer v.mu.Unlock()
	d.growth.inUse = true
}

// recordFailure records the failure in the claim's status. The controller takes over if the size is
// infeasible, or if another size was requested since.
func (v *Volumes) recordFailure(
	ctx context.Context, d *device, claim *v1.PersistentVolumeClaim, size resource.Quantity, err error,
) {
	v.mu.Lock()
	before := d.growth.failed
	d.growth.failed = true
	v.mu.Unlock()
	asked := claim.Spec.Resources.Requests[v1.ResourceStorage]
	infeasible := isExpandError(err, Infeasible) || before && asked.Cmp(size) != 0
	if _, perr := v.patchClaim(ctx, claim, false, failing(err, infeasible)); perr != nil {
		v.cfg.Log.Error("failed to record expansion failure in claim status",
			"PVC", claim.Namespace+"/"+claim.Name, "err", perr)
	}
}

// eventOfClaim records an event for the pod and for its claim.
func (v *Volumes) eventOfClaim(r Request, eventType, reason, what, more string) {
	message := fmt.Sprintf("%s for volume %q %s", what, r.Name, more)
	v.cfg.Events.Pod(r.Pod, "", eventType, reason, message)
	if v.cfg.ClaimEvent != nil {
		v.cfg.ClaimEvent(r.Claim, eventType, reason, message)
	}
}
