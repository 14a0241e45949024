package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

// TestANodeWithoutItsCSINodeIsNotReady: pods could not use volumes of CSI drivers on it.
func TestANodeWithoutItsCSINodeIsNotReady(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-23")
	var refused *apiproxy.Injection
	edit := func(w *script.World) { refused = w.Proxy.Inject(apiproxy.Fault{Resource: "csinodes", Code: 500}) }
	script.Settled(t, "", edit, func(t *testing.T, r *script.Run) {
		time.Sleep(10 * time.Second)
		c := r.NodeReady()
		if c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" ||
			c.Message != "CSINode is not yet initialized" {
			t.Errorf("without a CSINode the node is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		refused.Release()
		time.Sleep(time.Minute)
		if c := r.NodeReady(); c.Status != corev1.ConditionTrue {
			t.Errorf("with a CSINode the node is %s: %s", c.Status, c.Message)
		}
	})
}

// TestReservationsCountWhetherTheyAreEnforcedOrNot: in this test no reservation is enforced by a cgroup.
func TestReservationsCountWhetherTheyAreEnforcedOrNot(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-28")
	const reserved = "systemReserved: {cpu: 100m, memory: 200Mi, ephemeral-storage: 1Mi}\n" +
		"kubeReserved: {cpu: 200m, memory: 300Mi, ephemeral-storage: 2Mi}\n" +
		"evictionHard: {memory.available: 50Mi, nodefs.available: 3Mi, imagefs.available: 4Mi, nodefs.inodesFree: 5%}\n"
	script.Settled(t, reserved, nil, func(t *testing.T, r *script.Run) {
		st := r.NodeObject().Status
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
				t.Errorf("%s: %s of %s can be allocated, want %s", name, allocatable.String(), capacity.String(),
					want.String())
			}
		}
	})
}

// TestAPressureIsNoTaint: the agent sets no taints for pressure. The node controller sets them from the conditions.
func TestAPressureIsNoTaint(t *testing.T) {
	parity.Proves(t, "EVIC-12")
	const thresholds = "evictionHard: {memory.available: 1Gi, nodefs.available: 1Gi, pid.available: 1k}\n"
	script.Settled(t, thresholds, nil, func(t *testing.T, r *script.Run) {
		r.Must(t, "leaves", "memory.available=1Mi", "nodefs.available=1Mi", "pid.available=1")
		time.Sleep(30 * time.Second)
		under := 0
		for _, c := range r.NodeObject().Status.Conditions {
			if c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue {
				under++
			}
		}
		if taints := r.NodeObject().Spec.Taints; under != 3 || len(taints) > 0 {
			t.Errorf("%d pressures, taints %v", under, taints)
		}
		for _, verb := range []string{"patch", "update"} {
			if n := len(r.Asked(verb, "nodes")); n > 0 {
				t.Errorf("%d times %s of the node beside its status", n, verb)
			}
		}
	})
}

// TestOnlyTheOwnNodeIsWatched: the agent reads and lists no other node. A new status is compared with the object from
// the watch, so the node is not read for it.
func TestOnlyTheOwnNodeIsWatched(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-45")
	script.Settled(t, "", nil, func(t *testing.T, r *script.Run) {
		read, sent := len(r.Asked("get", "nodes")), len(r.Asked("patch", "nodes/status"))
		time.Sleep(30 * time.Minute)
		if read, sent := len(r.Asked("get", "nodes"))-read, len(r.Asked("patch", "nodes/status"))-sent; read > 0 ||
			sent < 5 {
			t.Errorf("%d statuses were sent and the node was read %d times", sent, read)
		}
		if len(r.Asked("watch", "nodes")) == 0 {
			t.Error("the node is not watched")
		}
		for _, q := range append(r.Asked("watch", "nodes"), r.Asked("list", "nodes")...) {
			if q.Fields != "metadata.name=node1" {
				t.Errorf("%s of nodes with %q", q.Verb, q.Fields)
			}
		}
		for _, q := range r.Asked("get", "nodes") {
			if q.Name != "node1" {
				t.Errorf("read node %s", q.Name)
			}
		}
	})
}

// TestExtendedResourcesOfAnotherMachine: a node that is registered keeps its extended resources, unless another machine
// takes its name and has no checkpoint of devices.
func TestExtendedResourcesOfAnotherMachine(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-02")
	const gpu = "example.com/gpu"
	for name, tc := range map[string]struct {
		info     corev1.NodeSystemInfo
		recorded bool
		want     string
	}{
		"another machine ID":     {corev1.NodeSystemInfo{MachineID: "another"}, false, "0"},
		"another system UUID":    {corev1.NodeSystemInfo{SystemUUID: "another"}, false, "0"},
		"with a record":          {corev1.NodeSystemInfo{MachineID: "another"}, true, "2"},
		"of which nothing tells": {corev1.NodeSystemInfo{}, false, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			edit := func(w *script.World) {
				amount := corev1.ResourceList{gpu: resource.MustParse("2")}
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: script.Node}}
				n.Status = corev1.NodeStatus{NodeInfo: tc.info, Capacity: amount, Allocatable: amount}
				if _, err := w.API.CoreV1().Nodes().Create(context.Background(), n,
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				dir := w.Path("kubelet/device-plugins")
				if err := os.MkdirAll(dir, 0o750); err != nil {
					t.Fatal(err)
				}
				text := `{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":0}`
				if tc.recorded {
					if err := os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), []byte(text),
						0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			script.Settled(t, "", edit, func(t *testing.T, r *script.Run) {
				shows := func(when, want string) {
					t.Helper()
					st := r.NodeObject().Status
					capacity, allocatable := st.Capacity[gpu], st.Allocatable[gpu]
					if capacity.String() != want || allocatable.String() != want || st.NodeInfo.MachineID == "another" {
						t.Errorf("%s: %s of %s, want %s", when, allocatable.String(), capacity.String(), want)
					}
				}
				time.Sleep(time.Minute)
				shows("at first", tc.want)
				if tc.want != "0" {
					return
				}
				// Values that an administrator sets for this machine are kept.
				_, err := r.API.CoreV1().Nodes().Patch(t.Context(), script.Node, types.MergePatchType,
					[]byte(`{"status":{"capacity":{"example.com/gpu":"3"},"allocatable":{"example.com/gpu":"3"}}}`),
					metav1.PatchOptions{}, "status")
				if err != nil {
					t.Fatal(err)
				}
				r.Stop()
				r.Start()
				time.Sleep(time.Minute)
				shows("after a restart", "3")
			})
		})
	}
}
