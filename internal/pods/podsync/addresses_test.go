package podsync

import (
	"slices"
	"strings"
	"testing"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// An address of another family that the cloud provider has chosen is reported once for each pod and address.
func TestAddressMismatchIsRecordedOnce(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	logged, now := &noted{}, ""
	m := newMeasured(t)
	m.cfg.Events, m.cfg.Node.AddressMismatch = logged, func() string { return now }
	a, b := m.worker("a", podNamed("a", pod.SourceAPI)), m.worker("b", podNamed("b", pod.SourceAPI))
	for _, text := range []string{"", "one", "one", "another", "", "another"} {
		now = text
		a.reportMismatch()
	}
	b.reportMismatch()
	const begin = "Warning HostIPsIPFamilyMismatch "
	if want := []string{begin + "one", begin + "another", begin + "another",
		begin + "another"}; !slices.Equal(logged.logged, want) {
		t.Errorf("logged %q, want %q", logged.logged, want)
	}
}

func TestAddressesOfAPod(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-27")
	m := newMeasured(t)
	have := pod.Runtime{
		Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"fd00::1", "fd00::2", "10.0.0.1"}}},
	}
	for _, tc := range []struct {
		nodeIP, host string
		hostNetwork  bool
		want         string
	}{
		{"192.0.2.1", "192.0.2.1 fd00::ff", true, "192.0.2.1 fd00::ff"},
		{"192.0.2.1", "192.0.2.1 fd00::ff", false, "10.0.0.1 fd00::1"},
		{"fd00::ff", "fd00::ff 192.0.2.1", false, "fd00::1 10.0.0.1"},
		{"::", "", false, "fd00::1 10.0.0.1"},
		{"", "", false, "10.0.0.1 fd00::1"},
		// Without --node-ip it is IPv4, also where the cloud's controller has put an IPv6 address first.
		{"", "fd00::ff 192.0.2.1", false, "10.0.0.1 fd00::1"},
	} {
		m.cfg.Node.HostIPs = func() []string { return strings.Fields(tc.host) }
		m.cfg.Node.NodeIP = tc.nodeIP
		spec := podNamed("u", pod.SourceAPI)
		spec.Spec.HostNetwork = tc.hostNetwork
		w := m.worker("u", spec)
		w.shown.seeIPs(spec, have, &m.cfg.Node)
		if got := strings.Join(w.shown.podIPs, " "); got != tc.want {
			t.Errorf("%+v: addresses %s", tc, got)
		}
	}
}
