package csi

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/storage/volume/persistent"
)

// The error for an unreadable secret names the step.
func TestUnreadableSecrets(t *testing.T) {
	p := &Plugin{cfg: Config{API: &testAPI{}}}
	one := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	inline := persistent.Request{Pod: one}
	inline.Inline = &v1.Volume{VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		NodePublishSecretRef: &v1.LocalObjectReference{Name: "mine"},
	}}}
	lasting := persistent.Request{Pod: one}
	lasting.PV = &v1.PersistentVolume{
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				NodeStageSecretRef:   &v1.SecretReference{Namespace: "sec", Name: "stage"},
				NodePublishSecretRef: &v1.SecretReference{Namespace: "sec", Name: "publish"},
			}},
		},
	}
	device := lasting
	device.Block = true
	none := func(name, ns string) string {
		notFound := `secrets "` + ns + "/" + name + `" not found` // the fake's message
		return "kubernetes.io/csi: failed to find the secret " + name + " in the namespace " + ns + " with error: " +
			notFound
	}
	for want, read := range map[string]func() (map[string]string, error){
		"fetching NodePublishSecretRef ns/mine failed: " + none("mine", "ns"): func() (map[string]string, error) {
			return p.publishSecrets(t.Context(), inline)
		},
		"fetching NodePublishSecretRef sec/publish failed: " +
			none("publish", "sec"): func() (map[string]string, error) {
			return p.publishSecrets(t.Context(), lasting)
		},
		"fetching NodeStageSecretRef sec/stage failed: " + none("stage", "sec"): func() (map[string]string, error) {
			return p.stageSecrets(t.Context(), lasting)
		},
		"kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef sec/publish: " +
			none("publish", "sec"): func() (map[string]string, error) {
			return p.publishSecrets(t.Context(), device)
		},
		"kubernetes.io/csi: failed to get NodeStageSecretRef sec/stage: " +
			none("stage", "sec"): func() (map[string]string, error) {
			return p.stageSecrets(t.Context(), device)
		},
	} {
		if _, err := read(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
