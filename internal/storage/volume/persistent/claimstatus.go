package persistent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
)

func resizeStatus(c *v1.PersistentVolumeClaim) v1.ClaimResourceStatus {
	return c.Status.AllocatedResourceStatuses[v1.ResourceStorage]
}

func setResizeStatus(c *v1.PersistentVolumeClaim, s v1.ClaimResourceStatus) {
	if c.Status.AllocatedResourceStatuses == nil {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	c.Status.AllocatedResourceStatuses[v1.ResourceStorage] = s
}

// inProgress sets the status of a claim whose volume is being expanded on the node.
func inProgress(c *v1.PersistentVolumeClaim) {
	setResizeStatus(c, v1.PersistentVolumeClaimNodeResizeInProgress)
}

// failing sets the condition with the reason of the failure. It keeps an existing reason.
func failing(err error, infeasible bool) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		if infeasible {
			setResizeStatus(c, v1.PersistentVolumeClaimNodeResizeInfeasible)
		}
		cond := v1.PersistentVolumeClaimCondition{
			Type:               v1.PersistentVolumeClaimNodeResizeError,
			Status:             v1.ConditionTrue,
			LastTransitionTime: metav1.Now(),
			Message:            "failed to expand pvc with " + pod.TextOf(err),
		}
		for i, old := range c.Status.Conditions {
			if old.Type == cond.Type {
				if old.Status != cond.Status {
					c.Status.Conditions[i] = cond
				}
				return
			}
		}
		c.Status.Conditions = append(c.Status.Conditions, cond)
	}
}

// finished sets the status of a claim after the expansion.
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

// patchClaim patches the status of a claim, if it changes. If guarded, the patch fails unless the
// claim still has the given resource version.
func (v *Volumes) patchClaim(
	ctx context.Context, old *v1.PersistentVolumeClaim, guarded bool, change func(*v1.PersistentVolumeClaim),
) (*v1.PersistentVolumeClaim, error) {
	next := old.DeepCopy()
	change(next)
	patch, err := statusPatch(old, next, guarded)
	if err != nil || patch == nil {
		return old, err
	}
	got, err := v.cfg.API.PatchClaimStatus(ctx, old.Namespace, old.Name, patch)
	if err != nil {
		return old, fmt.Errorf("patchPVCStatus failed to patch PVC %q: %w", old.Name, err)
	}
	return got, nil
}

// statusPatch returns the merge patch between two statuses, nil if they are equal. If guarded, it
// contains the resource version.
func statusPatch(old, next *v1.PersistentVolumeClaim, guarded bool) ([]byte, error) {
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
		if !slices.ContainsFunc(after.Conditions,
			func(n v1.PersistentVolumeClaimCondition) bool { return n.Type == c.Type }) {
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
	patch := map[string]any{"status": status}
	if guarded {
		patch["metadata"] = map[string]any{"resourceVersion": old.ResourceVersion}
	}
	return json.Marshal(patch)
}
