package stats

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"keelson/internal/resources/machine"
)

// TestPodOnTheNetworkOfTheNode: its traffic is that of the node's interfaces, as its first process sees them.
func TestPodOnTheNetworkOfTheNode(t *testing.T) {
	seen, err := machine.ReadTraffic(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 {
		t.Skip("this machine has no network interface that is shown")
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
