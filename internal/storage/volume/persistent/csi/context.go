package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson/internal/storage/volume/persistent"
)

// publishContext returns the publish context of the VolumeAttachment, if the driver's volumes are
// attached. It fails unless the volume is attached.
func (p *Plugin) publishContext(ctx context.Context, r persistent.Request, s source) (map[string]string, error) {
	if s.lifecycle == ephemeral {
		return nil, nil
	}
	attach, err := p.attaches(ctx, s.driver)
	if err != nil || !attach {
		return nil, err
	}
	name := AttachmentName(s.handle, s.driver, p.cfg.Node)
	a, err := p.cfg.API.VolumeAttachment(ctx, name)
	switch {
	case err != nil:
		err = fmt.Errorf("volume %s has GET error for volume attachment %s: %w", s.handle, name, err)
	case a.DeletionTimestamp != nil:
		err = errors.New("volume attachment is being deleted")
	case a.Status.Attached:
		return a.Status.AttachmentMetadata, nil
	case a.Status.AttachError != nil:
		err = errors.New(a.Status.AttachError.Message)
	default:
		err = fmt.Errorf("volume %s is not attached for volume attachment %s", s.handle, name)
	}
	return nil, persistent.Failed(r, persistent.StepAttach, err)
}

// secret reads a Secret in the form for drivers.
func (p *Plugin) secret(ctx context.Context, namespace, name string) (map[string]string, error) {
	if p.cfg.API == nil {
		return nil, errStandalone
	}
	got, err := p.cfg.API.Secret(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: failed to find the secret %s in the namespace %s with error: %w",
			name, namespace, err)
	}
	out := make(map[string]string, len(got.Data))
	for k, v := range got.Data {
		out[k] = string(v)
	}
	return out, nil
}

func (p *Plugin) secretOf(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	return p.secret(ctx, ref.Namespace, ref.Name)
}

// publishSecrets returns the secrets for NodePublishVolume. Those of an inline volume are in the
// pod's namespace.
func (p *Plugin) publishSecrets(ctx context.Context, r persistent.Request) (map[string]string, error) {
	var ref *v1.SecretReference
	if r.Inline == nil {
		ref = r.PV.Spec.CSI.NodePublishSecretRef
	} else if own := r.Inline.CSI.NodePublishSecretRef; own != nil {
		ref = &v1.SecretReference{Namespace: r.Pod.Namespace, Name: own.Name}
	}
	got, err := p.secretOf(ctx, ref)
	switch {
	case err != nil && r.Block:
		err = fmt.Errorf(
			"kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef %s/%s: %w",
			ref.Namespace, ref.Name, err)
	case err != nil:
		err = fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: %w", ref.Namespace, ref.Name, err)
	}
	return got, err
}

// stageSecrets returns the secrets for NodeStageVolume.
func (p *Plugin) stageSecrets(ctx context.Context, r persistent.Request) (map[string]string, error) {
	ref := r.PV.Spec.CSI.NodeStageSecretRef
	got, err := p.secretOf(ctx, ref)
	switch {
	case err != nil && r.Block:
		err = fmt.Errorf("kubernetes.io/csi: failed to get NodeStageSecretRef %s/%s: %w", ref.Namespace, ref.Name, err)
	case err != nil:
		err = fmt.Errorf("fetching NodeStageSecretRef %s/%s failed: %w", ref.Namespace, ref.Name, err)
	}
	return got, err
}

// volumeContext returns the volume context, with the pod info that the driver requests.
func volumeContext(d *storagev1.CSIDriver, s source, p *v1.Pod) map[string]string {
	out := maps.Clone(s.attributes)
	if d == nil || d.Spec.PodInfoOnMount == nil || !*d.Spec.PodInfoOnMount {
		return out
	}
	if out == nil {
		out = map[string]string{}
	}
	out[keyPodName] = p.Name
	out[keyPodNamespace] = p.Namespace
	out[keyPodUID] = string(p.UID)
	out[keyServiceAccount] = p.Spec.ServiceAccountName
	out[keyEphemeral] = strconv.FormatBool(s.lifecycle == ephemeral)
	return out
}

// tokens returns the service account tokens that the driver requests, as JSON; "" if it requests
// none.
func (p *Plugin) tokens(ctx context.Context, d *storagev1.CSIDriver, pod *v1.Pod) (string, error) {
	if d == nil || len(d.Spec.TokenRequests) == 0 {
		return "", nil
	}
	type token struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expirationTimestamp"`
	}
	out := map[string]token{}
	for _, want := range d.Spec.TokenRequests {
		var audiences []string
		if want.Audience != "" {
			audiences = []string{want.Audience}
		}
		value, expires, err := p.cfg.Tokens.Expiring(ctx, pod, audiences, want.ExpirationSeconds)
		if err != nil {
			return "", err
		}
		out[want.Audience] = token{value, expires.UTC()}
	}
	text, err := json.Marshal(out)
	return string(text), err
}

// inSecrets reports whether the driver expects tokens among the secrets.
func inSecrets(d *storagev1.CSIDriver) bool {
	return d.Spec.ServiceAccountTokenInSecrets != nil && *d.Spec.ServiceAccountTokenInSecrets
}

// with returns a map with an additional key. The given map may be nil and is not changed.
func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
