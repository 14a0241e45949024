package client

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods are the pods at the API server.
type Pods struct{ Resource[*corev1.Pod] }

// GetPod gets a pod.
func (p Pods) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.Get(ctx, namespace, name)
}

// CreatePod creates a pod.
func (p Pods) CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return p.Create(ctx, pod.Namespace, pod)
}

// DeletePod deletes a pod. The options have the grace period and the precondition for the UID.
func (p Pods) DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return p.Delete(ctx, namespace, name, opts)
}

// PatchStatus applies a strategic merge patch to the status of the pod with this UID. For a later pod with the same
// name the server answers with a conflict.
func (p Pods) PatchStatus(
	ctx context.Context, namespace, name string, uid types.UID, patch []byte,
) (*corev1.Pod, error) {
	patch, err := withUID(patch, uid)
	if err != nil {
		return nil, fmt.Errorf("patch status of pod %s/%s: %w", namespace, name, err)
	}
	return p.Patch(ctx, namespace, name, types.StrategicMergePatchType, patch, "status")
}

// withUID adds the UID to a patch, so that it applies to one object only: the server rejects changes of a UID.
func withUID(patch []byte, uid types.UID) ([]byte, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(patch, &doc); err != nil {
		return nil, fmt.Errorf("read patch: %w", err)
	}
	meta := map[string]json.RawMessage{}
	if raw, ok := doc["metadata"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, fmt.Errorf("read patch metadata: %w", err)
		}
	}
	quoted, err := json.Marshal(uid)
	if err != nil {
		return nil, err
	}
	meta["uid"] = quoted
	if doc["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}
