//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// swapPods is how many pods run while the agents are swapped: KEELSON_SWAP_PODS (a full
// node has 110), or by default enough to have one of every kind.
func swapPods(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KEELSON_SWAP_PODS")
	if text == "" {
		return many
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KEELSON_SWAP_PODS: %v", err)
	}
	return n
}

// fullStatic is the manifest of a static pod with many optional fields.
func (s *space) fullStatic(name string) []byte {
	s.t.Helper()
	p := s.demo(name, []string{"serve"}, initContainer("one", "echo", "hi"), sidecar("side", "serve", "-port", "8081"),
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mounted("host", "/host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}))
	p.APIVersion, p.Kind = "v1", "Pod"
	p.Labels = map[string]string{"tier": "control-plane"}
	p.Spec.PriorityClassName = "system-node-critical"
	p.Spec.Priority = ptr(int32(2_000_001_000))
	main := &p.Spec.Containers[0]
	main.Resources.Requests = corev1.ResourceList{"cpu": quantity("0.01"), "memory": quantity("10Mi")}
	main.LivenessProbe = httpProbe("/healthz")
	main.LivenessProbe.FailureThreshold = 60 // it may be probed before it listens
	main.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
	}
	main.Env = []corev1.EnvVar{
		{
			Name:      "NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		},
	}
	data, err := yaml.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

// TestSwapWithUpstream replaces the agent by upstream's under running pods, and
// back: each takes over the pods of the other, and no container is restarted.
func TestSwapWithUpstream(t *testing.T) {
	n := shared(t)
	pods := swapPods(t)
	peer, err := n.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	s := n.namespace(t)
	s.configMap("conf", map[string]string{"a": "b"})
	s.secret("hidden", map[string]string{"word": "sesame"})
	s.create(s.demo("plain", []string{"serve"}))
	s.create(s.demo("init", []string{"serve"}, initContainer("one", "echo", "hi"),
		sidecar("side", "serve", "-port", "8081")))
	s.create(s.demo("volumes", []string{"serve"},
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mounted("memory", "/memory",
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		mounted(
			"conf",
			"/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
				},
			},
		),
		mounted("hidden", "/hidden", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "hidden"}})))
	s.create(s.demo("host", []string{"sleep"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	s.create(s.demo("guaranteed", []string{"serve"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": quantity("100m"), "memory": quantity("64Mi")}
	}))
	s.create(s.demo("burstable", []string{"serve"}, requests("cpu", "50m")))
	s.create(s.demo("probed", []string{"serve"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = httpProbe("/healthz"),
			httpProbe("/healthz")
		p.Spec.Containers[0].LivenessProbe.FailureThreshold = 60 // it may be probed before it listens
	}))
	// Static pods, none of which has a UID in its manifest.
	s.manifest("st", s.static("st", "serve"))
	s.manifest("st-full", s.fullStatic("st-full"))
	begun := 9
	for ; begun < pods; begun++ {
		s.create(s.demo(fmt.Sprintf("more-%03d", begun), []string{"sleep"}))
	}
	s.create(s.demo("finished", []string{"echo", "done"}, never))
	s.phase("finished", corev1.PodSucceeded)
	before := instances(s.allReady(begun))
	// The new agent works once it has started another pod.
	settled := func(name string) {
		s.create(s.demo(name, []string{"serve"}))
		s.ready(name)
		s.delete(name, 0)
		s.gone(name)
	}
	for i, binary := range []string{peer, n.ours, peer, n.ours} {
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		settled(fmt.Sprintf("late-%d", i))
		if after := instances(s.allReady(begun)); after != before {
			t.Errorf("after swap %d the containers are\n%s\nbefore:\n%s", i+1, after, before)
		}
	}
	for _, p := range s.pods() {
		if p.Annotations["kubernetes.io/config.mirror"] == "" {
			s.delete(p.Name, 1)
		}
	}
	s.until("the static pods to be left", func() (string, bool) {
		left := s.pods()
		return fmt.Sprint(len(left)), len(left) == 2
	})
}
