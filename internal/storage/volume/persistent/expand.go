package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
)

// expand makes the node see a volume that has grown, and says so in the claim. It
// reports whether there is nothing left to do. The claim of the request is then the
// one that was written.
func (v *Volumes) expand(ctx context.Context, plugin Plugin, r *Request, published bool) (done bool, err error) {
	size, needed := grown(r.Spec)
	if !needed {
		return true, nil
	}
	e, ok := plugin.(Expander)
	if !ok {
		return true, nil
	}
	if r.ReadOnly {
		v.cfg.Events.Pod(r.Pod, "", v1.EventTypeWarning, pod.EventFSResizeFailed,
			fmt.Sprintf("%s failed for volume %q requested read-only file system", r.step(stepExpand), r.Name))
		return true, nil
	}
	if resizeStatus(r.Claim) != v1.PersistentVolumeClaimNodeResizeInProgress && resizeStatus(r.Claim) != "" {
		if r.Claim, err = v.patchClaim(ctx, r.Claim, inProgress); err != nil {
			return false, err
		}
	}
	done, err = e.Expand(ctx, *r, size, published)
	switch {
	case err != nil:
		v.cfg.Events.Pod(r.Pod, "", v1.EventTypeWarning, pod.EventResizeFailed,
			fmt.Sprintf("%s failed for volume %q : %v", r.step(stepExpand), r.Name, err))
		change := failing(err)
		if _, perr := v.patchClaim(ctx, r.Claim, change); perr != nil {
			return false, errors.Join(err, perr)
		}
		if errors.Is(err, ErrInfeasible) {
			return true, nil // the volume is good at its old size
		}
		return false, err
	case !done:
		return false, nil
	}
	if _, err := v.patchClaim(ctx, r.Claim, func(c *v1.PersistentVolumeClaim) { finished(c, size) }); err != nil {
		return false, err
	}
	v.cfg.Events.Pod(r.Pod, "", v1.EventTypeNormal, pod.EventFSResized,
		fmt.Sprintf("%s succeeded for volume %q %s", r.step(stepExpand), r.Name, r.Pod.Spec.NodeName))
	return true, nil
}

func (r Request) step(s step) string {
	if r.Block {
		return s.mapped
	}
	return s.mount
}

// grown is the size that a claim's volume has and its claim does not know of yet.
// A volume that cannot take the size is left until another one is asked for.
func grown(s Spec) (size resource.Quantity, needed bool) {
	if s.Claim == nil {
		return size, false
	}
	size = s.PV.Spec.Capacity[v1.ResourceStorage]
	known := s.Claim.Status.Capacity[v1.ResourceStorage]
	return size, known.Cmp(size) < 0 && resizeStatus(s.Claim) != v1.PersistentVolumeClaimNodeResizeInfeasible
}

func resizeStatus(c *v1.PersistentVolumeClaim) v1.ClaimResourceStatus {
	return c.Status.AllocatedResourceStatuses[v1.ResourceStorage]
}

func setResizeStatus(c *v1.PersistentVolumeClaim, s v1.ClaimResourceStatus) {
	if c.Status.AllocatedResourceStatuses == nil {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	c.Status.AllocatedResourceStatuses[v1.ResourceStorage] = s
}

// inProgress says that the node has begun.
func inProgress(c *v1.PersistentVolumeClaim) {
	setResizeStatus(c, v1.PersistentVolumeClaimNodeResizeInProgress)
}

// failing says why it does not go on.
func failing(err error) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		if errors.Is(err, ErrInfeasible) {
			setResizeStatus(c, v1.PersistentVolumeClaimNodeResizeInfeasible)
		}
		now := metav1.Now()
		cond := v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: now, Message: err.Error()}
		for i, old := range c.Status.Conditions {
			if old.Type == cond.Type {
				cond.LastTransitionTime = old.LastTransitionTime
				c.Status.Conditions[i] = cond
				return
			}
		}
		c.Status.Conditions = append(c.Status.Conditions, cond)
	}
}

// finished says that all of the size can be used.
func finished(c *v1.PersistentVolumeClaim, size resource.Quantity) {
	if c.Status.Capacity == nil {
		c.Status.Capacity = v1.ResourceList{}
	}
	c.Status.Capacity[v1.ResourceStorage] = size
	delete(c.Status.AllocatedResourceStatuses, v1.ResourceStorage)
	c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(cond v1.PersistentVolumeClaimCondition) bool {
		switch cond.Type {
		case v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
			v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
}

// patchClaim changes the status of a claim, if the change is one.
func (v *Volumes) patchClaim(ctx context.Context, old *v1.PersistentVolumeClaim, change func(*v1.PersistentVolumeClaim)) (*v1.PersistentVolumeClaim, error) {
	next := old.DeepCopy()
	change(next)
	patch, err := statusPatch(old, next)
	if err != nil || patch == nil {
		return old, err
	}
	got, err := v.cfg.API.PatchClaimStatus(ctx, old.Namespace, old.Name, patch)
	if err != nil {
		return old, fmt.Errorf("update status of PVC %s/%s: %w", old.Namespace, old.Name, err)
	}
	return got, nil
}

// statusPatch is the merge patch between two statuses; nil if they are equal. The
// resource version is part of it: what was decided is right for that one only.
func statusPatch(old, next *v1.PersistentVolumeClaim) ([]byte, error) {
	status := map[string]any{}
	before, after := old.Status, next.Status
	if a, b := before.Capacity[v1.ResourceStorage], after.Capacity[v1.ResourceStorage]; a.Cmp(b) != 0 {
		status["capacity"] = map[string]any{string(v1.ResourceStorage): b.String()}
	}
	if a, b := resizeStatus(old), resizeStatus(next); a != b {
		var value any
		if b != "" {
			value = b
		}
		status["allocatedResourceStatuses"] = map[string]any{string(v1.ResourceStorage): value}
	}
	conds := []any{}
	for _, c := range before.Conditions {
		if !slices.ContainsFunc(after.Conditions, func(n v1.PersistentVolumeClaimCondition) bool { return n.Type == c.Type }) {
			conds = append(conds, map[string]any{"type": c.Type, "$patch": "delete"})
		}
	}
	for _, c := range after.Conditions {
		if !slices.Contains(before.Conditions, c) {
			conds = append(conds, c)
		}
	}
	if len(conds) > 0 {
		status["conditions"] = conds
	}
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": old.ResourceVersion},
		"status":   status,
	})
}
