package node

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/host/machine"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/parity"
)

// TestNodeInfo: every field comes from its own source, each with a different value here. On
// the machine where upstream's node was recorded some values were equal.
func TestNodeInfo(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-31")
	parity.ProvesPart(t, 2, "NODE-32")
	parity.ProvesPart(t, 2, "NODE-34")
	parity.ProvesPart(t, 2, "NODE-35")
	st, _ := Project(Input{
		Machine: machine.Info{
			MachineID:  "machine",
			SystemUUID: "system",
			BootID:     "boot",
			Kernel:     "6.1.0",
			OSImage:    "Some Linux 3",
			OS:         "linux",
			Arch:       "arm64",
		},
		RuntimeName:    "containerd",
		RuntimeVersion: "1.7.27",
		Version:        "v1.36.3",
		Port:           10251,
		//lint:ignore SA1019 an agent of an older version may have written it
		Prev: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeProxyVersion: "v1.30.0"}},
		Health: Health{
			LastResponse: time.Now(),
			Status: cri.Status{Handlers: []cri.Handler{
				{Name: "z", UserNamespaces: true},
				{Name: "a", RecursiveReadOnlyMounts: true},
			}},
		},
	})
	if want := (v1.NodeSystemInfo{
		MachineID:               "machine",
		SystemUUID:              "system",
		BootID:                  "boot",
		KernelVersion:           "6.1.0",
		OSImage:                 "Some Linux 3",
		ContainerRuntimeVersion: "containerd://1.7.27",
		KubeletVersion:          "v1.36.3",
		OperatingSystem:         "linux",
		Architecture:            "arm64",
	}); st.NodeInfo != want {
		t.Errorf("nodeInfo = %+v\nwant       %+v", st.NodeInfo, want)
	}
	if st.DaemonEndpoints.KubeletEndpoint.Port != 10251 {
		t.Errorf("port %d", st.DaemonEndpoints.KubeletEndpoint.Port)
	}
	handler := func(name string, readOnly, users bool) v1.NodeRuntimeHandler {
		return v1.NodeRuntimeHandler{
			Name: name,
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: ptr.To(readOnly),
				UserNamespaces:          ptr.To(users),
			},
		}
	}
	want := []v1.NodeRuntimeHandler{handler("a", true, false), handler("z", false, true)}
	if a, b := asJSON(t, st.RuntimeHandlers), asJSON(t, want); a != b {
		t.Errorf("runtimeHandlers = %s\nwant %s", a, b)
	}
	if f := st.Features; f == nil || f.SupplementalGroupsPolicy == nil || *f.SupplementalGroupsPolicy {
		t.Errorf("features = %+v of a runtime without the policy", f)
	}
}

// TestStatusAddresses: the status has the addresses that were found and the hostname. If none is found, it keeps its
// addresses.
func TestStatusAddresses(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-25")
	in := Input{
		Hostname:  "n",
		Machine:   upstreamMachine(),
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00::2")},
	}
	in.Prev, _ = Project(in)
	const want = "[{InternalIP 192.0.2.2} {InternalIP fd00::2} {Hostname n}]"
	if got := fmt.Sprint(in.Prev.Addresses); got != want {
		t.Errorf("addresses %s, want %s", got, want)
	}
	in.Addresses = nil
	if st, _ := Project(in); fmt.Sprint(st.Addresses) != want {
		t.Errorf("with nothing found: %v, want %s", st.Addresses, want)
	}
}

// TestStatusKeepsAddresses: an agent that starts before the network is up
// does not remove the address from the node's status.
func TestStatusKeepsAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		api.node = &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "theirs"},
			Status:     v1.NodeStatus{Addresses: shown("InternalIP 198.51.100.99, Hostname node1")},
		}
		r := run(t, api, func(c *Config, _ *rig) {
			c.NodeIPs = []netip.Addr{netip.MustParseAddr("198.51.100.99")} // of no interface
		})
		defer r.stop()
		pass(time.Minute)
		n := api.snapshot()
		if got := fmt.Sprint(n.Status.Addresses); got != "[{InternalIP 198.51.100.99} {Hostname node1}]" {
			t.Errorf("addresses %s", got)
		}
		if readyOf(n).Status != v1.ConditionTrue {
			t.Errorf("Ready = %+v", readyOf(n))
		}
	})
}
