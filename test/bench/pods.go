package bench

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"keelson/test/images"
)

const podImage = images.Pause

// pausePod returns a usual pod: one container, and the token that the API server's admission adds. It ends at once on
// SIGTERM.
func pausePod(node, name string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"bench": "pause"}},
		Spec: corev1.PodSpec{
			NodeName:                      node, // the scheduler is not measured
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name:            "main",
				Image:           podImage,
				ImagePullPolicy: corev1.PullIfNotPresent,
			}},
		},
	}
}

// withToken adds the token volume that the ServiceAccount admission adds to every pod. The fake API server does not add
// it.
func withToken(p *corev1.Pod) *corev1.Pod {
	expires := int64(3607)
	mode := int32(0o644)
	const name = "kube-api-access-bench"
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: &mode,
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					ExpirationSeconds: &expires,
					Path:              "token",
				}},
				{
					ConfigMap: &corev1.ConfigMapProjection{
						LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
						Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
					},
				},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
					{
						Path:     "namespace",
						FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
					}}}},
			},
		}}})
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name:      name,
			ReadOnly:  true,
			MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
		})
	}
	return p
}

// withoutToken prevents the admission from adding a token.
func withoutToken(p *corev1.Pod) *corev1.Pod {
	no := false
	p.Spec.AutomountServiceAccountToken = &no
	return p
}

// once sets the restart policy Never, so that the pod ends with its container.
func once(p *corev1.Pod) *corev1.Pod {
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	return p
}

// probed adds a readiness probe with the usual period.
func probed(p *corev1.Pod, port int) *corev1.Pod {
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 10,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/",
			Port: intstr.FromInt32(int32(port)),
		}}}
	return p
}

// served makes the container a web server of the demo image.
func served(p *corev1.Pod, port int) *corev1.Pod {
	p.Spec.Containers[0].Image = images.Demo
	p.Spec.Containers[0].Args = []string{"serve", "-port", fmt.Sprint(port)}
	return p
}

// several returns n pods with numbered names.
func several(n int, prefix string, one func(name string) *corev1.Pod) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = one(fmt.Sprintf("%s-%03d", prefix, i))
	}
	return pods
}

func createOne(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	if _, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	return nil
}

// remove requests the deletion of pods in parallel.
func remove(ctx context.Context, client kubernetes.Interface, names []string) error {
	errs := make(chan error, len(names))
	slots := make(chan struct{}, 16)
	for _, name := range names {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			err := client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			errs <- err
		}()
	}
	var failed error
	for range names {
		if err := <-errs; err != nil {
			failed = fmt.Errorf("delete pods: %w", err)
		}
	}
	return failed
}
