//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// everyVolume mounts a volume of every kind that leaves something on the node: volumes
// of a driver as files, through a subPath, as a block device and inline, in memory, and
// with the content of objects.
func (st *storage) everyVolume(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}})
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/xvda"}}
	for _, add := range []spec{
		claimed("data", "/data"),
		mounted("own", "/own", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: st.name}}),
		mounted("memory", "/memory",
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mounted("conf", "/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}},
			}),
		mounted("hidden", "/hidden", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "hidden"}}),
	} {
		add(p)
	}
	for volume, path := range map[string]string{"data": "/below", "empty": "/below-empty"} {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: volume, MountPath: path, SubPath: "deep/down"})
	}
}

// TestSwapKeepsVolumes swaps the agent and upstream's under pods with volumes of
// every kind. A pod that runs all the time keeps its volumes, each agent
// starts pods on the same volumes, and removes what the other has mounted for a
// pod, so that at the end nothing is left. Both announce the same in-tree plugins as
// migrated to CSI.
func TestSwapKeepsVolumes(t *testing.T) {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Skip(t, "this machine has no loop devices")
	}
	parity.Proves(t, "VOL-72")
	n := shared(t)
	peer, err := n.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	s := n.namespace(t)
	st := s.storage(nil)
	st.volume("data", false, nil)
	st.volume("disk", false,
		func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) })
	st.write("data", "f", "precious")
	if err := os.MkdirAll(filepath.Join(st.driver.Data(st.handle("data")), "deep/down"), 0o777); err != nil {
		t.Fatal(err)
	}
	st.write("data", "deep/down/g", "below")
	s.configMap("conf", map[string]string{"a": "b"})
	s.secret("hidden", map[string]string{"word": "sesame"})

	// reads checks the content of the volumes inside the pod.
	reads := func(pod string) {
		t.Helper()
		for file, want := range map[string]string{
			"/data/f":      "precious",
			"/below/g":     "below",
			"/conf/a":      "b",
			"/hidden/word": "sesame",
		} {
			if got := s.kubectlDo("exec", pod, "--", "/demo", "cat", file); got != want {
				t.Errorf("%s reads %s as %q, not %q", pod, file, got, want)
			}
		}
		st.held("data")
	}
	// announces are the plugins that the CSINode lists as migrated to CSI.
	announces := func() (names string) {
		t.Helper()
		s.until("the node to say which plugins have moved to drivers", func() (string, bool) {
			c, err := s.Cluster.Client.StorageV1().CSINodes().Get(t.Context(), s.Kubelet.Node, metav1.GetOptions{})
			if err != nil {
				return err.Error(), false
			}
			names = c.Annotations[corev1.MigratedPluginsAnnotationKey]
			return "", names != ""
		})
		return names
	}
	ours := announces()
	passed := func(i int) string { return fmt.Sprintf("passed-%d", i) }
	for _, name := range []string{"kept", passed(0)} {
		s.create(s.demo(name, []string{"serve"}, st.everyVolume))
	}
	kept := s.ready("kept")
	s.ready(passed(0))
	reads("kept")
	swaps := []string{peer, n.ours, peer, n.ours}
	for i, binary := range swaps {
		_, err := s.Cluster.Client.StorageV1().CSINodes().Patch(t.Context(), s.Kubelet.Node, types.MergePatchType,
			mergePatch(
				t,
				map[string]any{
					"metadata": map[string]any{"annotations": map[string]any{corev1.MigratedPluginsAnnotationKey: nil}},
				},
			), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		if got := announces(); got != ours {
			t.Errorf("swap %d: the node says that %s have moved, and ours says %s", i+1, got, ours)
		}
		next := passed(i + 1)
		s.create(s.demo(next, []string{"serve"}, st.everyVolume))
		s.ready(next)
		reads(next)
		reads("kept")
		if now := s.ready("kept"); containerID(now, "main") != containerID(kept, "main") ||
			container(now, "main").RestartCount > 0 {
			t.Errorf("swap %d: the pod's container is another one", i+1)
		}
		s.delete(passed(i), 1)
		s.gone(passed(i))
	}
	s.delete("kept", 1)
	s.delete(passed(len(swaps)), 1)
	s.gone("kept")
	s.gone(passed(len(swaps)))
	st.unused("data", "disk")
	n.nothing(t)
}
