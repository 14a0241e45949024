//go:build guest

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

const swapBytes = 64 << 20

// withSwap enables swap on the machine for the duration of a test.
func withSwap(t *testing.T) {
	t.Helper()
	// The file is on the disk, because a swap file cannot be on an overlay file system, such as the root.
	file := filepath.Join(shared.Dir, "swap")
	if err := os.WriteFile(file, make([]byte, swapBytes+4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkswap", file}, {"swapon", file}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("swapoff", file).CombinedOutput(); err != nil {
			t.Errorf("swapoff: %v: %s", err, out)
		}
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	})
}

// TestSwap reads the swap limit of each kind of container for each swap behavior of the node.
func TestSwap(t *testing.T) {
	parity.Proves(t, "LIFE-131")
	withSwap(t)
	for _, behavior := range []string{"LimitedSwap", "NoSwap", ""} {
		t.Run("behavior "+behavior, func(t *testing.T) {
			a := agentWith(t, "", func(c *config) { c.MemorySwap.SwapBehavior = behavior })
			a.run("may", []string{"sleep"}, requests("memory", "300Mi"), func(p *corev1.Pod) {
				even := demo("even", "sleep")
				even.Resources.Limits = list("memory", "64Mi")
				p.Spec.Containers = append(p.Spec.Containers, even, demo("none", "sleep"))
			})
			a.run("besteffort", []string{"sleep"})
			a.run("guaranteed", []string{"sleep"}, limits("cpu", "50m", "memory", "64Mi"))
			a.run("critical", []string{"sleep"}, requests("memory", "300Mi"),
				func(p *corev1.Pod) { p.Spec.Priority = ptr(int32(2_000_000_000)) })
			p := a.ready("may")
			memory := a.server.Node(a.Node).Status.Capacity.Memory().Value()
			share := int64(float64(300<<20) / float64(memory) * float64(swapBytes))
			share -= share % int64(os.Getpagesize())
			if behavior != "LimitedSwap" {
				share = 0
			}
			swap := func(p *corev1.Pod, name string, want int64) {
				t.Helper()
				a.has(a.room(p, name), map[string]string{"memory.swap.max": fmt.Sprint(want)})
			}
			swap(p, "main", share)
			swap(p, "even", 0)
			swap(p, "none", 0)
			for _, name := range []string{"besteffort", "guaranteed", "critical"} {
				swap(a.ready(name), "main", 0)
			}
		})
	}
}
