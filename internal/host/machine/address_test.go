package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"keelson/test/kit/parity"
)

const (
	table4 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	010200C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	010200C0	0003	0	0	100	00000000	0	0	0
gone0	00000000	010200C0	0002	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
`
	table6 = `fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
`
)

func TestDefaultRoutes(t *testing.T) {
	got, err := DefaultRoutes(fstest.MapFS{"proc/net/route": file(table4), "proc/net/ipv6_route": file(table6)})
	if want := "[{eth0 false 100} {wlan0 false 600} {eth0 true 1024}]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("DefaultRoutes = %v, %v, want %s", got, err, want)
	}
	if got, err := DefaultRoutes(fstest.MapFS{}); err != nil || len(got) != 0 {
		t.Errorf("without tables = %v, %v", got, err)
	}
}

func ips(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestAddresses(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-25")
	parity.ProvesPart(t, 3, "CFG-112")
	ifs := []Interface{
		{Name: "lo", Up: true, Loopback: true, Addrs: ips("127.0.0.1", "::1")},
		{Name: "eth0", Up: true, Addrs: ips("fe80::1", "192.0.2.2", "fd00::2")},
		{Name: "eth1", Up: true, Addrs: ips("198.51.100.7")},
	}
	both := []Route{{Interface: "eth0"}, {Interface: "eth0", IPv6: true}}
	resolves := func(to ...string) func(context.Context, string) ([]netip.Addr, error) {
		return func(context.Context, string) ([]netip.Addr, error) { return ips(to...), nil }
	}
	for _, tc := range []struct {
		name string
		in   AddressInput
		want string // or a part of the error
	}{
		{"the configured address wins", AddressInput{
			NodeIPs: ips("198.51.100.7"),
			Name:    "192.0.2.2",
		}, "[198.51.100.7]"},
		{"two configured addresses are kept in order",
			AddressInput{NodeIPs: ips("fd00::2", "192.0.2.2")}, "[fd00::2 192.0.2.2]"},
		{"a configured address must be the host's", AddressInput{NodeIPs: ips("203.0.113.1")},
			`node IP: "203.0.113.1" not found in the host's network interfaces`},
		{"not loopback", AddressInput{NodeIPs: ips("127.0.0.1")}, "nodeIP can't be loopback address"},
		{"not multicast", AddressInput{NodeIPs: ips("224.0.0.1")}, "nodeIP can't be a multicast address"},
		{"not link-local", AddressInput{NodeIPs: ips("fe80::1")}, "nodeIP can't be a link-local unicast address"},
		{"a name that is an address is it", AddressInput{Name: "203.0.113.9"}, "[203.0.113.9]"},
		{"a name is resolved, IPv4 first", AddressInput{
			Name:   "n",
			Lookup: resolves("fd00::2", "198.51.100.7"),
			Routes: both,
		}, "[198.51.100.7]"},
		{"IPv6 if there is nothing else", AddressInput{
			Name:   "n",
			Lookup: resolves("fd00::2"),
			Routes: both,
		}, "[fd00::2]"},
		{":: only selects the family", AddressInput{
			NodeIPs: ips("::"),
			Name:    "n",
			Lookup:  resolves("198.51.100.7", "fd00::2"),
		}, "[fd00::2]"},
		{"0.0.0.0 only selects the family", AddressInput{
			NodeIPs: ips("0.0.0.0"),
			Name:    "n",
			Lookup:  resolves("fd00::2", "198.51.100.7"),
		}, "[198.51.100.7]"},
		{"a name that means loopback is ignored", AddressInput{
			Name:   "n",
			Lookup: resolves("127.0.0.1"),
			Routes: both,
		}, "[192.0.2.2]"},
		{"a name that means another host is ignored", AddressInput{
			Name:   "n",
			Lookup: resolves("203.0.113.1"),
			Routes: both,
		}, "[192.0.2.2]"},
		{"of several, the first that is the host's", AddressInput{
			Name:   "n",
			Lookup: resolves("203.0.113.1", "fd00::9", "198.51.100.7"),
			Routes: both,
		}, "[198.51.100.7]"},
		{"an unknown name: the default route", AddressInput{
			Name:   "n",
			Routes: both,
			Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") },
		}, "[192.0.2.2]"},
		{"the default route of the stated family", AddressInput{
			NodeIPs: ips("::"),
			Name:    "n",
			Routes:  both,
		}, "[fd00::2]"},
		{"an IPv6 route serves where there is no other", AddressInput{Name: "n", Routes: both[1:]}, "[fd00::2]"},
		{"no default route", AddressInput{Name: "n"}, "no interface with a default route"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Interfaces = ifs
			got, err := Addresses(t.Context(), tc.in)
			if err != nil {
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v does not say %q", err, tc.want)
				}
			} else if fmt.Sprint(got) != tc.want {
				t.Errorf("Addresses = %v, want %s", got, tc.want)
			}
		})
	}
}

// The address family of --node-ip is not changed: if the machine loses its address of that family,
// the node has no address. An address of the other family is used only after a restart with another
// --node-ip.
func TestAddressFamilyAfterRestart(t *testing.T) {
	parity.Proves(t, "NODE-43")
	before := []Interface{{Name: "eth0", Up: true, Addrs: ips("192.0.2.2", "fd00::2")}}
	after := []Interface{{Name: "eth0", Up: true, Addrs: ips("fd00::2")}}
	routes := []Route{{Interface: "eth0"}, {Interface: "eth0", IPv6: true}}
	for _, c := range []struct {
		given string
		ifs   []Interface
		want  string
	}{
		{"192.0.2.2", before, "[192.0.2.2]"},
		{"192.0.2.2", after, "[]"},
		{"fd00::2", after, "[fd00::2]"},
	} {
		got, err := Addresses(t.Context(), AddressInput{
			NodeIPs:    ips(c.given),
			Name:       "n",
			Interfaces: c.ifs,
			Routes:     routes,
		})
		if fmt.Sprint(got) != c.want || (err != nil) != (c.want == "[]") {
			t.Errorf("started with %s, on %v: %v, %v, want %s", c.given, c.ifs, got, err, c.want)
		}
	}
}
