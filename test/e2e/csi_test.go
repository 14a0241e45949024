//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// TestAttachedVolumeOfAStatefulSet checks all steps of a volume with the real attach/detach
// controller: it is attached because a pod uses it, staged and published, expanded in use,
// mounted for the next pod of the set with its data, and detached only after it was unmounted
// from the node.
func TestAttachedVolumeOfAStatefulSet(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	st := s.storage(nil)
	st.volume("data-db-0", true, nil)
	st.write("data-db-0", "f", "precious")
	like := s.demo("db", []string{"serve"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})
	labels := map[string]string{"app": "db"}
	_, err := s.Cluster.Client.AppsV1().StatefulSets(s.ns).Create(t.Context(),
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"},
			Spec: appsv1.StatefulSetSpec{Replicas: ptr(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: like.Spec},
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
					Spec: corev1.PersistentVolumeClaimSpec{
						AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						StorageClassName: &st.name,
						Resources: corev1.VolumeResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
						}}}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := s.ready("db-0")
	st.held("data-db-0")
	if got := s.kubectlDo("exec", "db-0", "--", "/demo", "cat", "/data/f"); got != "precious" {
		t.Errorf("the pod reads %q", got)
	}

	// It is expanded while the pod runs.
	st.grow("data-db-0", "2Gi")
	st.claim("data-db-0", "2Gi large", func(c *corev1.PersistentVolumeClaim) bool {
		have := c.Status.Capacity[corev1.ResourceStorage]
		return have.Cmp(quantity("2Gi")) == 0 && len(c.Status.AllocatedResourceStatuses) == 0
	})
	if got := st.driver.Count("NodeExpandVolume"); got != 1 {
		t.Errorf("the driver was reported %d times that the volume grew", got)
	}
	s.event("db-0", "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume")
	if p := s.ready("db-0"); p.UID != first.UID || containerID(p, "main") != containerID(first, "main") {
		t.Error("the pod did not survive the growth of its volume")
	}

	// The next pod of the set has the data.
	s.delete("db-0", 1)
	second := s.pod("db-0", "another one and Ready", func(p *corev1.Pod) bool {
		return p.UID != first.UID && condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	if got := s.kubectlDo("exec", "db-0", "--", "/demo", "cat", "/data/f"); got != "precious" {
		t.Errorf("the pod after it reads %q", got)
	}
	s.until("the directory of the first pod to be gone", func() (string, bool) {
		_, err := os.Lstat(filepath.Join(s.Kubelet.Root, "pods", string(first.UID)))
		return fmt.Sprint(err), os.IsNotExist(err)
	})

	if err := s.Cluster.Client.AppsV1().StatefulSets(s.ns).Delete(t.Context(),
		"db", metav1.DeleteOptions{PropagationPolicy: ptr(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	s.gone("db-0")
	st.unused("data-db-0")
	calls := st.driver.Methods()
	if calls[0] != "NodeStageVolume" ||
		!slices.Equal(calls[len(calls)-2:], []string{"NodeUnpublishVolume", "NodeUnstageVolume"}) ||
		st.driver.Count("NodePublishVolume") != st.driver.Count("NodeUnpublishVolume") {
		t.Errorf("the driver was called in this order: %v", calls)
	}
	st.until("the volume to be detached", func() (string, bool) {
		up, down := st.times(st.handle("data-db-0"))
		return fmt.Sprintf("attached %d times, detached %d times", up, down), up > 0 && up == down
	})
	t.Logf("second pod %s; calls %v", second.UID, calls)
}

// TestBlockVolumeAndInlineVolume has one pod with a block volume and one with an inline
// volume, both of the driver.
func TestBlockVolumeAndInlineVolume(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Skip(t, "this machine has no loop devices")
	}
	s := shared(t).namespace(t)
	st := s.storage(nil)
	st.volume("disk", false,
		func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) })
	if err := os.MkdirAll(filepath.Dir(st.driver.Data("x")), 0o750); err != nil {
		t.Fatal(err)
	}
	p := s.demo("block", []string{"sleep"}, func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}})
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/xvda"}}
	}, mounted("own", "/own", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: st.name}}))
	s.create(p)
	p = s.ready("block")
	if got := s.kubectlDo("exec", "block", "--", "/demo", "ls", "/dev/xvda"); !strings.HasPrefix(got, "D") {
		t.Errorf("the device is %q", got)
	}
	st.held("disk")
	inline := filepath.Join(s.Kubelet.Root, "pods", string(p.UID), "volumes/kubernetes.io~csi/own/mount")
	if err := os.WriteFile(filepath.Join(inline, "f"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := s.kubectlDo("exec", "block", "--", "/demo", "cat", "/own/f"); got != "mine" {
		t.Errorf("the inline volume reads %q", got)
	}
	s.delete("block", 1)
	s.gone("block")
	st.unused("disk")
	st.until("no mounts of the driver", func() (string, bool) { return fmt.Sprint(st.mounts()), len(st.mounts()) == 0 })
}

// TestNodeIsFull makes the attacher report that the node's attachment limit is reached:
// the pod is Failed, and the CSINode is updated with the number of volumes that the node
// can have.
func TestNodeIsFull(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "SRC-50", "VOL-22", "PLUG-18")
	s := shared(t).namespace(t)
	st := s.storage(func(d *storagev1.CSIDriverSpec) { d.NodeAllocatableUpdatePeriodSeconds = ptr(int64(3600)) })
	shows := func(want int32) {
		t.Helper()
		s.until(fmt.Sprintf("the CSINode to show room for %d volumes", want), func() (string, bool) {
			n, err := s.Cluster.Client.StorageV1().CSINodes().Get(t.Context(), s.Kubelet.Node, metav1.GetOptions{})
			if err != nil {
				return err.Error(), false
			}
			for _, d := range n.Spec.Drivers {
				if d.Name == st.name && d.Allocatable != nil && d.Allocatable.Count != nil {
					return fmt.Sprint(*d.Allocatable.Count), *d.Allocatable.Count == want
				}
			}
			return fmt.Sprint(n.Spec.Drivers), false
		})
	}
	shows(50)
	st.volume("data", false, nil)
	st.driver.SetMax(7)
	st.mu.Lock()
	st.refuse = &storagev1.VolumeError{Message: "no slot is free", ErrorCode: ptr(int32(codes.ResourceExhausted))}
	st.mu.Unlock()
	s.create(s.demo("full", []string{"serve"}, claimed("data", "/data")))
	p := s.phase("full", corev1.PodFailed)
	if p.Status.Reason != "VolumeAttachmentLimitExceeded" ||
		!strings.HasPrefix(p.Status.Message, "Pod was rejected: Node has reached its volume attachment limit") {
		t.Errorf("the pod ended with %s: %s", p.Status.Reason, p.Status.Message)
	}
	s.event("full", "VolumeAttachmentLimitExceeded", "no slot is free")
	shows(7)
	// The CSINode is also updated periodically once the CSIDriver object has a period for that.
	st.driver.SetMax(5)
	_, err := s.Cluster.Client.StorageV1().CSIDrivers().Patch(t.Context(), st.name, types.MergePatchType,
		mergePatch(t, map[string]any{"spec": map[string]any{"nodeAllocatableUpdatePeriodSeconds": 10}}),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shows(5)
	if got := st.driver.Methods(); len(got) > 0 {
		t.Errorf("the driver was called: %v", got)
	}
	s.delete("full", 0)
	s.gone("full")
	st.unused("data")
}
