//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// clouded is a node whose addresses another client sets.
type clouded struct {
	*space
	// asks is set if the agent syncs pods when they change, and not when the node
	// changes.
	asks bool
}

// address sets exactly these addresses in the node's status, as a cloud controller does.
func (c clouded) address(list ...corev1.NodeAddress) {
	c.t.Helper()
	patch, err := json.Marshal(
		[]map[string]any{
			{"op": "replace", "path": "/status/addresses", "value": append([]corev1.NodeAddress{}, list...)},
		},
	)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = c.Cluster.Client.CoreV1().Nodes().Patch(c.t.Context(), c.Kubelet.Node, types.JSONPatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		c.t.Fatal(err)
	}
}

// onHost makes a pod on the node's network and waits until it has these addresses.
func (c clouded) onHost(name string, addresses ...string) {
	c.t.Helper()
	c.create(c.demo(name, []string{"sleep"}, c.bound, func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	var want []corev1.PodIP
	for _, ip := range addresses {
		want = append(want, corev1.PodIP{IP: ip})
	}
	c.pod(name, "at "+strings.Join(addresses, ", "), func(p *corev1.Pod) bool {
		return rig.PodReady(p) && p.Status.PodIP == addresses[0] && slices.Equal(p.Status.PodIPs, want)
	})
}

func (c clouded) bound(p *corev1.Pod) { p.Spec.NodeName = c.Kubelet.Node }

// have waits until exactly these pods have these host IPs in their status.
func (c clouded) have(scene string, pods, addresses string) {
	c.t.Helper()
	looks := 0
	want := []corev1.HostIP(nil)
	for _, ip := range strings.Fields(addresses) {
		want = append(want, corev1.HostIP{IP: ip})
	}
	c.until(scene+" "+pods+" to be on "+addresses, func() (string, bool) {
		var got, right []string
		for _, p := range c.pods() {
			got = append(got, fmt.Sprintf("%s on %s %v", p.Name, p.Status.HostIP, p.Status.HostIPs))
			first := ""
			if len(want) > 0 {
				first = want[0].IP
			}
			if slices.Equal(p.Status.HostIPs, want) && p.Status.HostIP == first {
				right = append(right, p.Name)
			}
			if c.asks && looks%20 == 0 {
				c.kubectlDo("annotate", "--overwrite", "pod", p.Name, fmt.Sprintf("look=%d", looks))
			}
		}
		looks++
		return strings.Join(got, ", "), strings.Join(right, " ") == pods
	})
}

// TestAddressesOfACloud sets the node's addresses as another client, under upstream's agent and
// ours: pods get the addresses of the node object, and a container that needs the address while
// there is none waits.
// Our agent reports an event for each pod if the cloud has set another IP family; upstream's agent
// has code for this event but never sends it.
func TestAddressesOfACloud(t *testing.T) {
	parity.Proves(t, "LIFE-28")
	n, peer := bothAgents(t)
	n.Rig = rig.Start(t, rig.Options{
		Cluster: true,
		Runtime: &rig.RuntimeConfig{},
		Kubelet: &rig.KubeletConfig{Binary: peer, Edit: quick, Flags: []string{"--cloud-provider=external"}},
	})
	t.Run("upstream", func(t *testing.T) { n.addressesOfACloud(t, true) })
	if err := n.Kubelet.Swap(t.Context(), n.ours); err != nil {
		t.Fatal(err)
	}
	t.Run("keelson", func(t *testing.T) { n.addressesOfACloud(t, false) })
}

func (n *node) addressesOfACloud(t *testing.T, upstream bool) {
	c := clouded{n.namespace(t), upstream}
	own, name := n.NodeIP(), corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Kubelet.Node}
	inner := func(ip string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
	}
	outer := func(ip string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip}
	}
	shows := func(want string) {
		t.Helper()
		c.until("the node to show "+want, func() (string, bool) {
			got := fmt.Sprint(c.nodeObject().Status.Addresses)
			return got, got == want
		})
	}
	given := fmt.Sprintf("[{InternalIP %s} {Hostname %s}]", own, n.Kubelet.Node)
	shows(given) // no other client has written yet
	c.create(c.demo("a", []string{"serve"}, c.bound))
	c.onHost("b", own)
	c.have("at first", "a b", own)

	c.address(inner("fd00::5"), name)
	c.have("with the other family", "a b", "fd00::5")
	c.onHost("c", "fd00::5")

	c.address(outer("192.0.2.9"), inner("192.0.2.7"), inner("192.0.2.8"), inner("fd00::6"), name)
	c.have("with both", "a b c", "192.0.2.7 fd00::6")
	c.onHost("d", "192.0.2.7", "fd00::6")

	c.address(outer("192.0.2.9"), inner("fd00::6"), name)
	c.have("with one outside", "a b c d", "fd00::6 192.0.2.9")

	c.address(name)
	c.have("with none", "a b c d", "")
	c.create(c.demo("e", []string{"serve"}, c.bound, func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{
				Name:      "HOST",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}},
			},
		}
	}))
	unknown := fmt.Sprintf("host IP unknown; known addresses: [{Hostname %s}]", n.Kubelet.Node)
	c.pod("e", "waiting for the node's address", func(p *corev1.Pod) bool {
		w := container(p, "main").State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && w.Message == unknown
	})
	c.event("e", "Failed", "Error: "+unknown)

	c.address() // as if it had never been there
	shows(given)
	c.ready("e")
	c.have("with what was given", "a b c d e", own)

	logged := map[string][]string{}
	for _, p := range c.pods() {
		for _, e := range c.events(p.Name) {
			if e.Reason == "HostIPsIPFamilyMismatch" {
				logged[p.Name] = append(logged[p.Name], fmt.Sprintf("%s %d %s", e.Type, e.Count, e.Message))
			}
		}
	}
	want := map[string][]string{}
	if !upstream {
		text := "Warning 1 Kubelet was given an IPv4 node IP (" + own +
			"), but the cloud provider selected an IPv6 node IP (%s); have the cloud provider follow `--node-ip`, or change that."
		five, six := fmt.Sprintf(text, "fd00::5"), fmt.Sprintf(text, "fd00::6")
		want = map[string][]string{"a": {five, six}, "b": {five, six}, "c": {five, six}, "d": {six}}
	}
	if fmt.Sprint(logged) != fmt.Sprint(want) {
		t.Errorf("under %s it was logged\n%v\nwant\n%v", filepath.Base(t.Name()), logged, want)
	}
	for _, p := range c.pods() {
		c.delete(p.Name, 0)
		c.gone(p.Name)
	}
}
