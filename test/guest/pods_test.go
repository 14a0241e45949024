//go:build guest

package guest

import (
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/images"
)

type (
	config = kubeletconfig.KubeletConfiguration
	spec   = func(*corev1.Pod)
)

func ptr[T any](v T) *T { return &v }

// list returns a list of resources from pairs: "cpu", "100m", "memory", "64Mi".
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// demo returns a container of the demo image.
func demo(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: images.Demo, Args: args}
}

func requests(pairs ...string) spec {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list(pairs...) }
}

func limits(pairs ...string) spec {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = list(pairs...) }
}

// run creates a pod whose container main runs the demo image with args.
func (a *agent) run(name string, args []string, specs ...spec) {
	a.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName: a.Node, Containers: []corev1.Container{demo("main", args...)},
			AutomountServiceAccountToken: ptr(false), EnableServiceLinks: ptr(false),
			TerminationGracePeriodSeconds: ptr(int64(5)),
		},
	}
	for _, s := range specs {
		s(p)
	}
	// Defaults that a real API server would set.
	for _, cs := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range cs {
			for name, q := range cs[i].Resources.Limits {
				if cs[i].Resources.Requests == nil {
					cs[i].Resources.Requests = corev1.ResourceList{}
				}
				if _, ok := cs[i].Resources.Requests[name]; !ok {
					cs[i].Resources.Requests[name] = q
				}
			}
		}
	}
	if _, err := a.api.CoreV1().Pods("default").Create(a.t.Context(), p, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

func container(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return &corev1.ContainerStatus{}
}

// home returns the folder of a pod's cgroup, which depends on its QoS class.
func (a *agent) home(p *corev1.Pod) string {
	class := map[corev1.PodQOSClass]string{
		corev1.PodQOSBurstable:  "burstable",
		corev1.PodQOSBestEffort: "besteffort",
	}[p.Status.QOSClass]
	return filepath.Join(top, a.Name, "kubepods", class, "pod"+string(p.UID))
}

// room returns the folder of a container's cgroup.
func (a *agent) room(p *corev1.Pod, name string) string {
	_, id, _ := strings.Cut(container(p, name).ContainerID, "://")
	return filepath.Join(a.home(p), id)
}

// has compares files of a cgroup with their expected contents.
func (a *agent) has(dir string, want map[string]string) {
	a.t.Helper()
	for file, w := range want {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			a.t.Error(err)
			continue
		}
		if g := strings.TrimSpace(string(got)); g != w {
			a.t.Errorf("%s of %s is %q, want %q", file, strings.TrimPrefix(dir, top), g, w)
		}
	}
}
