//go:build guest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

// TestTree reads the cgroup settings of all pods together, of each QoS class, of pods and of their containers.
func TestTree(t *testing.T) {
	parity.Proves(t, "RES-01")
	a := agentWith(t, "", func(c *config) {
		c.PodPidsLimit = ptr(int64(333))
		c.KubeReserved = map[string]string{"cpu": "100m", "memory": "200Mi", "pid": "1000"}
		c.SystemReserved = map[string]string{"cpu": "50m", "memory": "56Mi"}
	})
	a.run("guaranteed", []string{"serve"}, limits("cpu", "100m", "memory", "64Mi"))
	a.run("burstable", []string{"serve"}, requests("cpu", "150m", "memory", "20Mi"), limits("memory", "50Mi"))
	a.run("besteffort", []string{"serve"})
	kubepods := filepath.Join(top, a.Name, "kubepods")
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"guaranteed", "burstable", "besteffort"} {
		pods[name] = a.ready(name)
	}
	node := a.server.Node(a.Node)
	memory := node.Status.Capacity.Memory().Value() - 256<<20
	if kept := node.Status.Capacity.Memory().Value() - node.Status.Allocatable.Memory().Value(); kept != (256+100)<<20 {
		t.Errorf("%d bytes of memory are kept, want what is reserved and what eviction keeps free", kept)
	}
	if kept := node.Status.Capacity.Cpu().MilliValue() - node.Status.Allocatable.Cpu().MilliValue(); kept != 150 {
		t.Errorf("%d thousandths of CPU are kept", kept)
	}
	shares := (node.Status.Capacity.Cpu().MilliValue() - 150) * 1024 / 1000
	a.has(kubepods, map[string]string{
		"memory.max": fmt.Sprint(memory), "cpu.weight": fmt.Sprint(weight(shares)), "cpu.max": "max 100000",
	})
	a.has(filepath.Join(kubepods, "burstable"), map[string]string{
		"cpu.weight": fmt.Sprint(weight(153)),
		"memory.max": "max",
	})
	a.has(filepath.Join(kubepods, "besteffort"), map[string]string{"cpu.weight": "1", "memory.max": "max"})
	a.has(a.home(pods["guaranteed"]), map[string]string{
		"cpu.weight": fmt.Sprint(weight(102)),
		"cpu.max":    "10000 100000",
		"memory.max": fmt.Sprint(64 << 20),
		"pids.max":   "333",
	})
	a.has(a.home(pods["burstable"]), map[string]string{
		"cpu.weight": fmt.Sprint(weight(153)),
		"cpu.max":    "max 100000",
		"memory.max": fmt.Sprint(50 << 20),
		"pids.max":   "333",
	})
	a.has(a.home(pods["besteffort"]), map[string]string{
		"cpu.weight": "1",
		"cpu.max":    "max 100000",
		"memory.max": "max",
		"pids.max":   "333",
	})
	a.has(a.room(pods["guaranteed"], "main"), map[string]string{
		"cpu.max":          "10000 100000",
		"memory.max":       fmt.Sprint(64 << 20),
		"memory.oom.group": "1",
	})
	a.has(a.room(pods["burstable"], "main"), map[string]string{
		"cpu.max":    "max 100000",
		"memory.max": fmt.Sprint(50 << 20),
	})
	a.has(a.room(pods["besteffort"], "main"), map[string]string{"cpu.max": "max 100000", "memory.max": "max"})
	limit, err := os.ReadFile(filepath.Join(kubepods, "pids.max"))
	if err != nil || strings.TrimSpace(string(limit)) == "max" {
		t.Errorf("process numbers of all pods: %q %v", limit, err)
	}
}

// weight converts shares to a weight by linear interpolation.
func weight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }
