package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

// shown reads addresses as "InternalIP 192.0.2.1, Hostname a".
func shown(text string) (out []v1.NodeAddress) {
	for _, one := range strings.Split(text, ", ") {
		if kind, address, ok := strings.Cut(one, " "); ok {
			out = append(out, v1.NodeAddress{Type: v1.NodeAddressType(kind), Address: address})
		}
	}
	return out
}

func addrs(text string) (out []netip.Addr) {
	for _, one := range strings.Fields(text) {
		out = append(out, netip.MustParseAddr(one))
	}
	return out
}

func TestReachableAddresses(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-27")
	for shows, want := range map[string]string{
		"":                          "",
		"Hostname a":                "",
		"InternalIP 192.0.2.1":      "192.0.2.1",
		"ExternalIP fd00::1":        "fd00::1",
		"InternalIP not an address": "",
		"InternalIP 192.0.2.1, InternalIP 192.0.2.2":                     "192.0.2.1",
		"InternalIP fd00::1, InternalIP 192.0.2.2":                       "fd00::1 192.0.2.2",
		"ExternalIP 192.0.2.9, InternalIP 192.0.2.1":                     "192.0.2.1",
		"ExternalIP 192.0.2.9, InternalIP fd00::1, Hostname a":           "fd00::1 192.0.2.9",
		"InternalIP 192.0.2.1, InternalIP fd00::1, InternalIP 192.0.2.3": "192.0.2.1 fd00::1",
	} {
		if got := reachableAddresses(shown(shows)); !slices.Equal(got, addrs(want)) {
			t.Errorf("of %q: %v, want %q", shows, got, want)
		}
	}
}

func TestAddressMismatch(t *testing.T) {
	for _, tc := range []struct {
		name, found, chosen string
		provided            bool
		want                string
	}{
		{"the same family", "192.0.2.1", "192.0.2.2 fd00::1", false, ""},
		{"nothing is chosen yet", "192.0.2.1", "", false, ""},
		{"nothing was found", "", "192.0.2.1", false, ""},
		{"another one", "192.0.2.1", "fd00::1 192.0.2.1", false,
			"Kubelet detected an IPv4 node IP (192.0.2.1), but the cloud provider selected an IPv6 node IP (fd00::1); pass " +
				"an explicit `--node-ip` to kubelet to fix this."},
		{"another one than was given", "fd00::1", "192.0.2.1", true,
			"Kubelet was given an IPv6 node IP (fd00::1), but the cloud provider selected an IPv4 node IP (192.0.2.1); have " +
				"the cloud provider follow `--node-ip`, or change that."},
	} {
		if got := mismatch(addrs(tc.found), addrs(tc.chosen), tc.provided); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A cloud controller sets and removes addresses of a node. OnAddresses is called once for each change.
func TestCloudProviderAddresses(t *testing.T) {
	for _, provided := range []bool{true, false} {
		t.Run(fmt.Sprintf("--node-ip %v", provided), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				r := run(t, newServer(), func(c *Config, _ *rig) {
					c.Identity.Name, c.Identity.External = "192.0.2.2", true // also the address of the machine
					if provided {
						c.Identity.ProvidedIP = "192.0.2.2"
					}
					c.OnAddresses = func() { calls++ }
				})
				defer r.stop()
				<-r.Registered()
				expect := func(what, shows, ips string, times int) {
					t.Helper()
					pass(r.cfg.UpdateEvery * 2)
					if got := r.api.snapshot().Status.Addresses; !slices.Equal(got, shown(shows)) {
						t.Errorf("%s the node shows %v, want %s", what, got, shows)
					}
					if got := r.HostIPs(); !slices.Equal(got, addrs(ips)) {
						t.Errorf("%s pods get %v, want %s", what, got, ips)
					}
					if calls != times {
						t.Errorf("%s OnAddresses was called %d times, want %d", what, calls, times)
					}
				}
				first, given, times := "Hostname node1", "", 0
				if provided {
					first, given, times = "InternalIP 192.0.2.2, Hostname node1", "192.0.2.2", 1
				}
				expect("at first", first, given, times)
				set := func(shows string) { r.api.edit(func(n *v1.Node) { n.Status.Addresses = shown(shows) }) }
				set("InternalIP fd00::1, Hostname b")
				expect("with the cloud's", "InternalIP fd00::1, Hostname b", "fd00::1", times+1)
				if got := r.AddressMismatch(); !strings.Contains(got,
					"IPv4 node IP (192.0.2.2), but the cloud provider "+
						"selected an IPv6 node IP (fd00::1)") {
					t.Errorf("logged %q", got)
				}
				set("Hostname b")
				expect("with a name", "Hostname b", "", times+2)
				set("")
				expect("with nothing", first, given, 2*times+2)
				if got := r.AddressMismatch(); got != "" {
					t.Errorf("logged %q", got)
				}
			})
		})
	}
}
