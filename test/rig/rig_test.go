package rig

import (
	"context"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/images"
	"keelson/test/kit/need"
	"keelson/test/parts"
)

// TestUpstreamKubeletOnTheRig shows that the rig is a working cluster: upstream's kubelet runs a Deployment on it.
func TestUpstreamKubeletOnTheRig(t *testing.T) {
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ps, err := parts.Named("kubelet")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := b.State(ps[0]); err != nil || !s.Built {
		need.Skip(t, "upstream's kubelet is not built: go run ./tools/parts peer", err)
	}
	peer, err := b.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	r := Start(t, Options{Cluster: true, Kubelet: &KubeletConfig{Binary: peer}})
	t.Logf("node Ready after %s", time.Since(start))
	labels := map[string]string{"app": "demo"}
	d, err := r.Cluster.Client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: images.Demo}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err = until(ctx, r.Cluster.Client.AppsV1().Deployments("default").Watch, d.Name,
		func(d *appsv1.Deployment) bool {
			return d.Status.ReadyReplicas == 3
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("3 replicas Ready after %s", time.Since(start))
}
