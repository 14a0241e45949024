package stats

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson/internal/host/machine"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// TestNodeNetworkMetrics checks the stats of each interface, and that those of eth0 are also the stats of the node.
func TestNodeNetworkMetrics(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-37")
	text, err := json.Marshal(networkStats([]machine.Traffic{
		{Name: "ens3", RxBytes: 1, RxErrors: 2, TxBytes: 3, TxErrors: 4},
		{Name: "eth0", RxBytes: 5, RxErrors: 6, TxBytes: 7, TxErrors: 8},
	}, began))
	if err != nil {
		t.Fatal(err)
	}
	const eth0 = `"name":"eth0","rxBytes":5,"rxErrors":6,"txBytes":7,"txErrors":8`
	want := `{"time":"` + began.UTC().Format(time.RFC3339) + `",` + eth0 + `,"interfaces":[` +
		`{"name":"ens3","rxBytes":1,"rxErrors":2,"txBytes":3,"txErrors":4},{` + eth0 + `}]}`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	seen, err := machine.ReadTraffic(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(newGround(t, true).cfg).Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	var names, shown []string
	for _, i := range seen {
		names = append(names, i.Name)
	}
	for _, i := range s.Node.Network.Interfaces {
		shown = append(shown, i.Name)
	}
	if !slices.Equal(shown, names) {
		t.Errorf("the node has %q, shown are %q", names, shown)
	}
}

// TestHostNetworkPodMetrics checks that the traffic of a pod in the host network is that of the node's interfaces, read
// through the first process of its sandbox.
func TestHostNetworkPodMetrics(t *testing.T) {
	seen, err := machine.ReadTraffic(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 {
		need.Skip(t, "this machine has no network interface to report")
	}
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		g.runs(podDir+"/"+sandboxID, os.Getpid())
		p := g.pod()
		p.Have.Sandboxes[0].HostNetwork = true
		g.cfg.Pods = func() []Pod { return []Pod{p} }
		c := New(g.cfg)
		s, err := c.Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Pods[0].Network; n == nil || len(n.Interfaces) != len(seen) || n.Interfaces[0].Name != seen[0].Name {
			t.Errorf("network %s, the process sees %+v", show(n), seen)
		}
		text := expose(t, c.Containers())
		want := fmt.Sprintf(`container_network_receive_bytes_total{container="",id="%s/%s",`+
			`image="registry.k8s.io/pause:3.10.1",interface="%s",name="%s",namespace="default",pod="web"}`,
			podDir, sandboxID, seen[0].Name, sandboxID)
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	})
}
