package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/parity"
)

// gauges returns the values of the gauges by name.
func gauges(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		out[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return out
}

func TestStartupMetrics(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known before: %v", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newServer()
				if known {
					api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "old"}}
				}
				api.set(func(f *fakeServer) { f.down = fmt.Errorf("not yet") })
				registry := prometheus.NewRegistry()
				boot := time.Now().Add(-20 * time.Second)
				r := run(t, api, func(c *Config, _ *rig) { c.Startup = NewStartup(registry, boot, time.Now()) })
				defer r.stop()
				pass(3 * time.Second)
				api.set(func(f *fakeServer) { f.down = nil })
				pass(time.Minute)
				got := gauges(t, registry)
				pre := got["kubelet_node_startup_pre_kubelet_duration_seconds"]
				before := got["kubelet_node_startup_pre_registration_duration_seconds"]
				during := got["kubelet_node_startup_registration_duration_seconds"]
				after, total := got["kubelet_node_startup_post_registration_duration_seconds"],
					got["kubelet_node_startup_duration_seconds"]
				if len(got) != 5 {
					t.Errorf("measured %v", got)
				}
				if known && total != 0 {
					t.Errorf("a node that is known already started within %v s", total)
				}
				if !known &&
					(pre != 20 || during < 2.5 || during > 8 || total < 22.5 ||
						total-(pre+before+during+after) > 0.001 || after > 1) {
					t.Errorf("measured %v", got)
				}
			})
		})
	}
}

func TestStandalonePodCIDR(t *testing.T) {
	parity.Proves(t, "CFG-61")
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil, func(c *Config, _ *rig) { c.PodCIDR = "10.1.0.0/24" })
		defer r.stop()
		pass(time.Minute)
		if got := fmt.Sprint(r.runtime.cidrs); got != "[10.1.0.0/24]" {
			t.Errorf("reported %s", got)
		}
	})
	// With an API server the pod CIDR of the node object is used, and that of the configuration is ignored.
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r := run(t, api, func(c *Config, _ *rig) { c.PodCIDR = "10.1.0.0/24" })
		defer r.stop()
		pass(time.Minute)
		if got := fmt.Sprint(r.runtime.cidrs); got != "[]" {
			t.Errorf("reported %s", got)
		}
	})
}

func TestAttachDetachAnnotation(t *testing.T) {
	const annotation = "volumes.kubernetes.io/controller-managed-attach-detach"
	theirs, own := Identity{Name: "n"}, Identity{Name: "n", AttachesItself: true}
	if theirs.object().Annotations[annotation] != "true" {
		t.Error("the controller is not asked to attach")
	}
	if v, there := own.object().Annotations[annotation]; there {
		t.Errorf("the annotation is %q", v)
	}
	if v, there := own.adopt(theirs.object(), nil, false).Annotations[annotation]; there {
		t.Errorf("the annotation is still %q", v)
	}
	if own := theirs.adopt(own.object(), nil, false); own.Annotations[annotation] != "true" {
		t.Error("the controller is not notified of the change")
	}
}

func TestCgroupV1Event(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-24")
	for old, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, newServer(), func(c *Config, _ *rig) { c.CgroupV1 = old })
			defer r.stop()
			pass(time.Minute)
			if n := r.events.Count("CgroupV1"); n != want {
				t.Errorf("cgroup v1 %v: logged %d times", old, n)
			}
			const text = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. " +
				"Please migrate to cgroup v2. More information at " +
				"https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
			if r.reported("Warning CgroupV1 "+text) != old {
				t.Errorf("cgroup v1 %v: the event does not have upstream's text", old)
			}
		})
	}
}

func TestStatusOfOthersIsKept(t *testing.T) {
	parity.Proves(t, "NODE-26", "NODE-30", "NODE-37")
	in := Input{
		Now:          time.Now(),
		Hostname:     "n",
		External:     true,
		Machine:      upstreamMachine(),
		Capacity:     list("cpu", "2"),
		Allocatable:  list("cpu", "1"),
		VolumesInUse: []v1.UniqueVolumeName{"csi/a"},
	}
	st, _ := Project(in)
	if fmt.Sprint(st.Addresses) != "[{Hostname n}]" {
		t.Errorf("before the cloud's controller came: %v", st.Addresses)
	}
	in.Prev = st
	in.Prev.Addresses = []v1.NodeAddress{{
		Type:    v1.NodeExternalIP,
		Address: "192.0.2.1",
	}, {Type: v1.NodeHostName, Address: "cloud-name"}}
	in.Prev.VolumesAttached = []v1.AttachedVolume{{Name: "csi/a", DevicePath: "/dev/x"}}
	in.Prev.Capacity["example.com/dongle"] = list("d", "4")["d"]
	in.VolumesInUse = []v1.UniqueVolumeName{"csi/a", "csi/b"}
	st, _ = Project(in)
	if fmt.Sprint(st.Addresses) != "[{ExternalIP 192.0.2.1} {Hostname cloud-name}]" {
		t.Errorf("the cloud's addresses became %v", st.Addresses)
	}
	if fmt.Sprint(st.VolumesInUse) != "[csi/a csi/b]" || len(st.VolumesAttached) != 1 ||
		st.VolumesAttached[0].Name != "csi/a" {
		t.Errorf("volumes in use %v, attached %v", st.VolumesInUse, st.VolumesAttached)
	}
	capacity, allocatable := st.Capacity["example.com/dongle"], st.Allocatable["example.com/dongle"]
	if capacity.Value() != 4 || allocatable.Value() != 4 {
		t.Errorf("extended resource: capacity %s, allocatable %s", capacity.String(), allocatable.String())
	}
}
