package script

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/parity"
)

// nodeReady is the condition of the node object; zero if there is none.
func (w *world) nodeReady() corev1.NodeCondition {
	for _, c := range w.nodeObject().Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// TestANodeWithoutItsCSINodeIsNotReady: volumes of CSI drivers could not be used there.
func TestANodeWithoutItsCSINodeIsNotReady(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-23")
	var refused *apiproxy.Injection
	edit := func(w *world) { refused = w.proxy.Inject(apiproxy.Fault{Resource: "csinodes", Code: 500}) }
	settled(t, "", edit, func(t *testing.T, r *run) {
		time.Sleep(10 * time.Second)
		c := r.nodeReady()
		if c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "CSINode is not yet initialized" {
			t.Errorf("without a CSINode the node is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		refused.Release()
		time.Sleep(time.Minute)
		if c := r.nodeReady(); c.Status != corev1.ConditionTrue {
			t.Errorf("with a CSINode the node is %s: %s", c.Status, c.Message)
		}
	})
}

// TestReservationsCountWhetherTheyAreEnforcedOrNot: here nothing is enforced.
func TestReservationsCountWhetherTheyAreEnforcedOrNot(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-28")
	const reserved = "systemReserved: {cpu: 100m, memory: 200Mi, ephemeral-storage: 1Mi}\n" +
		"kubeReserved: {cpu: 200m, memory: 300Mi, ephemeral-storage: 2Mi}\n" +
		"evictionHard: {memory.available: 50Mi, nodefs.available: 3Mi, imagefs.available: 4Mi, nodefs.inodesFree: 5%}\n"
	settled(t, reserved, nil, func(t *testing.T, r *run) {
		st := r.nodeObject().Status
		for name, less := range map[corev1.ResourceName]string{
			"cpu": "300m", "memory": "550Mi", "ephemeral-storage": "6Mi", "pods": "0",
		} {
			capacity, allocatable := st.Capacity[name], st.Allocatable[name]
			want := capacity.DeepCopy()
			want.Sub(resource.MustParse(less))
			if name == "memory" {
				for page, pages := range st.Capacity {
					if len(page) > len("hugepages-") && page[:len("hugepages-")] == "hugepages-" {
						want.Sub(pages)
					}
				}
			}
			if allocatable.Cmp(want) != 0 {
				t.Errorf("%s: %s of %s can be allocated, want %s", name, allocatable.String(), capacity.String(), want.String())
			}
		}
	})
}

// TestAPressureIsNoTaint: taints for pressure are set by the node controller, from the conditions.
func TestAPressureIsNoTaint(t *testing.T) {
	parity.Proves(t, "EVIC-12")
	const thresholds = "evictionHard: {memory.available: 1Gi, nodefs.available: 1Gi, pid.available: 1k}\n"
	settled(t, thresholds, nil, func(t *testing.T, r *run) {
		r.must(t, "leaves", "memory.available=1Mi", "nodefs.available=1Mi", "pid.available=1")
		time.Sleep(30 * time.Second)
		under := 0
		for _, c := range r.nodeObject().Status.Conditions {
			if c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue {
				under++
			}
		}
		if taints := r.nodeObject().Spec.Taints; under != 3 || len(taints) > 0 {
			t.Errorf("%d pressures, taints %v", under, taints)
		}
		for _, verb := range []string{"patch", "update"} {
			if n := len(r.asked(verb, "nodes")); n > 0 {
				t.Errorf("%d times %s of the node beside its status", n, verb)
			}
		}
	})
}

// TestOnlyTheOwnNodeIsWatched: and no other node is read or listed. What the watch shows is what
// a status is compared with: none is read for it.
func TestOnlyTheOwnNodeIsWatched(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-45")
	settled(t, "", nil, func(t *testing.T, r *run) {
		read, sent := len(r.asked("get", "nodes")), len(r.asked("patch", "nodes/status"))
		time.Sleep(30 * time.Minute)
		if read, sent := len(r.asked("get", "nodes"))-read, len(r.asked("patch", "nodes/status"))-sent; read > 0 || sent < 5 {
			t.Errorf("%d statuses were sent and the node was read %d times", sent, read)
		}
		if len(r.asked("watch", "nodes")) == 0 {
			t.Error("the node is not watched")
		}
		for _, q := range append(r.asked("watch", "nodes"), r.asked("list", "nodes")...) {
			if q.Fields != "metadata.name=node1" {
				t.Errorf("%s of nodes with %q", q.Verb, q.Fields)
			}
		}
		for _, q := range r.asked("get", "nodes") {
			if q.Name != "node1" {
				t.Errorf("read node %s", q.Name)
			}
		}
	})
}
