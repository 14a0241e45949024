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

// An Expander is a Plugin whose volumes can grow while they are published.
type Expander interface {
	// Expand makes the node see the size. The kind of the failure is given by an
	// ExpandError, if that matters.
	Expand(ctx context.Context, r Request, size resource.Quantity) error
}

// ExpandError is why a volume was not expanded.
type ExpandError struct {
	Kind ExpandKind
	Err  error
}

func (e *ExpandError) Error() string { return e.Err.Error() }
func (e *ExpandError) Unwrap() error { return e.Err }

// ExpandKind is a kind of failure that more than a retry follows from.
type ExpandKind int

// The kinds of failures.
const (
	_           ExpandKind = iota
	Infeasible             // it will never work with this size
	Unsupported            // the plugin has nothing to do on nodes
	InUse                  // it does not work while the volume is in use
	Unavailable            // the plugin is not there; nothing was tried
)

func isExpandError(err error, kind ExpandKind) bool {
	var e *ExpandError
	return errors.As(err, &e) && e.Kind == kind
}

// growth is what the node knows of the size of a volume. Guarded by Volumes.mu.
type growth struct {
	size   resource.Quantity // that the volume has on this node; zero until a claim was read
	inUse  bool              // it cannot be expanded while it is in use: that is not tried again
	failed bool              // an expansion failed
}

// nodeExpansionNotRequired is the annotation of a claim whose volume needs no expansion
// on nodes.
const nodeExpansionNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// permission is what a node may do with a volume whose size has changed.
type permission int

const (
	notNow     permission = iota // it is the controller's turn, or the size is infeasible
	isExpanded                   // the claim has the size, and the node has nothing to do
	expandToo                    // the claim has the size, but every node has to expand
	expandNow                    // the node's turn has come
)

// permissionOf is what the status of the claim permits the node to do.
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

// recoverable reports whether the resize controller notes in the claim how far an
// expansion is. Older ones do not.
func recoverable(c *v1.PersistentVolumeClaim) bool {
	return resizeStatus(c) != "" || c.Status.AllocatedResources != nil
}

// expandAtMount expands a volume that was just published, if it has grown and its claim
// does not know.
func (v *Volumes) expandAtMount(ctx context.Context, plugin Plugin, d *device, r Request) error {
	e, ok := plugin.(Expander)
	if !ok || r.Claim == nil {
		return nil
	}
	want, known := r.PV.Spec.Capacity[v1.ResourceStorage], r.Claim.Status.Capacity[v1.ResourceStorage]
	if r.ReadOnly {
		if known.Cmp(want) < 0 {
			v.tellOfClaim(r, v1.EventTypeWarning, pod.EventFSResizeFailed, "MountVolume.NodeExpandVolume failed", "requested read-only file system")
		}
		return nil
	}
	v.knowSize(d, known)
	if known.Cmp(want) >= 0 {
		return nil
	}
	if err := v.grow(ctx, e, d, r, want); err != nil {
		f := &volume.Failure{Step: "MountVolume.Setup", While: "expanding volume", Volume: r.Name, Reason: pod.EventFailedMount, Err: err}
		if r.Block {
			f.Step, f.Reason = "MapVolume.MarkVolumeAsMounted", pod.EventFailedMapVolume
		}
		return f
	}
	return nil
}

// expandInUse expands a volume that the pod has, if it has grown since this node last
// expanded it. It returns the operation if one was tried.
func (v *Volumes) expandInUse(ctx context.Context, plugin Plugin, d *device, r Request) (volume.Operation, error) {
	e, ok := plugin.(Expander)
	if !ok || r.Claim == nil || r.ReadOnly {
		return volume.Nothing, nil
	}
	want, known := r.PV.Spec.Capacity[v1.ResourceStorage], r.Claim.Status.Capacity[v1.ResourceStorage]
	v.knowSize(d, known)
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

// knowSize notes the size that the volume has on the node, if none is known.
func (v *Volumes) knowSize(d *device, size resource.Quantity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d.growth.size.IsZero() {
		d.growth.size = size
	}
}

// grow expands the volume as far as it is this node's turn. What is not done without an
// error is tried again when the claim is next read.
func (v *Volumes) grow(ctx context.Context, e Expander, d *device, r Request, want resource.Quantity) error {
	if !recoverable(r.Claim) {
		return v.growPlainly(ctx, e, d, r, want)
	}
	size := r.Claim.Status.AllocatedResources[v1.ResourceStorage]
	may := permissionOf(r.Claim, size)
	claim := r.Claim
	switch may {
	case notNow:
		return nil
	case isExpanded:
		v.isNow(d, size)
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
		v.isNow(d, size)
		return nil
	case err != nil:
		if !isExpandError(err, Unavailable) {
			v.noteFailure(ctx, d, claim, size, err)
		}
		if isExpandError(err, InUse) {
			v.stopExpanding(d, r, err)
			return nil
		}
		return err
	}
	v.tellOfClaim(r, v1.EventTypeNormal, pod.EventFSResized, "MountVolume.NodeExpandVolume succeeded", r.Pod.Spec.NodeName)
	if may == expandNow {
		if _, err := v.patchClaim(ctx, claim, true, func(c *v1.PersistentVolumeClaim) { finished(c, size) }); err != nil {
			return fmt.Errorf("mountVolume.NodeExpandVolume update pvc status failed: %w", err)
		}
	}
	v.isNow(d, size)
	return nil
}

// growPlainly expands a volume whose controller notes nothing in the claim.
func (v *Volumes) growPlainly(ctx context.Context, e Expander, d *device, r Request, want resource.Quantity) error {
	err := e.Expand(ctx, r, want)
	switch {
	case isExpandError(err, Unsupported):
		v.isNow(d, want)
		return nil
	case isExpandError(err, InUse):
		v.stopExpanding(d, r, err)
		return nil
	case err != nil:
		return err
	}
	v.tellOfClaim(r, v1.EventTypeNormal, pod.EventFSResized, "MountVolume.NodeExpandVolume succeeded", r.Pod.Spec.NodeName)
	if known := r.Claim.Status.Capacity[v1.ResourceStorage]; known.Cmp(want) < 0 {
		if _, err := v.patchClaim(ctx, r.Claim, true, func(c *v1.PersistentVolumeClaim) { finished(c, want) }); err != nil {
			return fmt.Errorf("mountVolume.NodeExpandVolume update PVC status failed : %w", err)
		}
	}
	v.isNow(d, want)
	return nil
}

// isNow notes the size that the volume has on the node.
func (v *Volumes) isNow(d *device, size resource.Quantity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.growth.size = size
}

// stopExpanding notes that the volume is not to be expanded while it is in use.
func (v *Volumes) stopExpanding(d *device, r Request, err error) {
	v.cfg.Log.Warn("volume is not expanded while it is in use", "volume", r.Name, "err", err)
	v.mu.Lock()
	defer v.mu.Unlock()
	d.growth.inUse = true
}

// noteFailure writes into the claim why the volume did not grow. The controller takes
// over where the size is infeasible, or is no longer the one that is asked for.
func (v *Volumes) noteFailure(ctx context.Context, d *device, claim *v1.PersistentVolumeClaim, size resource.Quantity, err error) {
	v.mu.Lock()
	before := d.growth.failed
	d.growth.failed = true
	v.mu.Unlock()
	asked := claim.Spec.Resources.Requests[v1.ResourceStorage]
	infeasible := isExpandError(err, Infeasible) || before && asked.Cmp(size) != 0
	if _, perr := v.patchClaim(ctx, claim, false, failing(err, infeasible)); perr != nil {
		v.cfg.Log.Error("cannot record in the claim that its expansion failed",
			"claim", claim.Namespace+"/"+claim.Name, "err", perr)
	}
}

// tellOfClaim records an event about the pod and about its claim.
func (v *Volumes) tellOfClaim(r Request, eventType, reason, what, more string) {
	message := fmt.Sprintf("%s for volume %q %s", what, r.Name, more)
	v.cfg.Events.Pod(r.Pod, "", eventType, reason, message)
	if v.cfg.ClaimEvent != nil {
		v.cfg.ClaimEvent(r.Claim, eventType, reason, message)
	}
}
