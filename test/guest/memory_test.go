//go:build guest

package guest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func never(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

// TestContainerOutOfMemory: the kernel kills a container that exceeds its memory limit. By configuration it kills all
// its processes or only one.
func TestContainerOutOfMemory(t *testing.T) {
	parity.Proves(t, "EVIC-31", "LIFE-132")
	for _, single := range []*bool{nil, ptr(true)} {
		name, group := "unset", "1"
		if single != nil {
			name = fmt.Sprint(*single)
			group = map[bool]string{false: "1", true: "0"}[*single]
		}
		t.Run("singleProcessOOMKill "+name, func(t *testing.T) {
			a := agentWith(t, "", func(c *config) { c.SingleProcessOOMKill = single })
			a.run("calm", []string{"sleep"}, limits("memory", "64Mi"))
			a.run("hog", []string{"hog", "200"}, limits("memory", "64Mi"), never)
			p := a.pod("hog", "over", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
			if end := container(p, "main").State.Terminated; end == nil || end.Reason != "OOMKilled" ||
				end.ExitCode != 137 {
				t.Errorf("ended as %+v", end)
			}
			p = a.ready("calm")
			a.has(a.room(p, "main"), map[string]string{"memory.oom.group": group})
			if n := container(p, "main").RestartCount; n != 0 {
				t.Errorf("the pod beside it was restarted %d times", n)
			}
			for _, e := range a.events() {
				if e.Reason == "SystemOOM" {
					t.Errorf("a container's own limit is reported as the machine's: %s", e.Message)
				}
			}
		})
	}
}

const eatEnv = "KEELSON_EAT"

var eaten [][]byte

// eat allocates memory until none is left. It first moves this process to the root cgroup, as a process of the system,
// and makes it the first choice of the OOM killer.
func eat() error {
	if err := os.WriteFile(filepath.Join(top, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return err
	}
	for {
		eaten = append(eaten, bytes.Repeat([]byte{1}, 16<<20))
	}
}

// TestSystemOutOfMemory: the whole machine runs out of memory, and the kernel kills a process of the system.
func TestSystemOutOfMemory(t *testing.T) {
	parity.Proves(t, "EVIC-30")
	a := agentWith(t, "", nil)
	// A process of the system: it runs in the root cgroup and is the first choice of the OOM killer.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	victim := exec.CommandContext(ctx, "/proc/self/exe")
	victim.Env = []string{eatEnv + "=yes"}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	pid := victim.Process.Pid
	if err := victim.Wait(); ctx.Err() != nil || victim.ProcessState.String() != "signal: killed" {
		t.Fatalf("the process ended: %v %v", err, ctx.Err())
	}
	e := a.event("SystemOOM", fmt.Sprintf("System OOM encountered, victim process: exe, pid: %d", pid))
	if e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != a.Node {
		t.Errorf("%+v", e)
	}
}

// TestMemoryPressure: pods use almost all the memory that is allocatable. The pod that exceeds its request most is
// evicted. The node has the MemoryPressure condition, and later loses it.
func TestMemoryPressure(t *testing.T) {
	parity.Proves(t, "EVIC-05")
	a := agentWith(t, "", func(c *config) {
		have, err := os.ReadFile("/proc/meminfo")
		if err != nil {
			t.Fatal(err)
		}
		kib, err := strconv.ParseInt(strings.Fields(string(have))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c.SystemReserved = map[string]string{"memory": fmt.Sprint(kib<<10 - 700<<20)} // leaves 700 MiB for pods
		c.EvictionHard["memory.available"] = "200Mi"
		c.EvictionPressureTransitionPeriod.Duration = 1
	})
	a.has(filepath.Join(top, a.Name, "kubepods"), map[string]string{"memory.max": fmt.Sprint(700 << 20)})
	a.run("modest", []string{"hog", "100"}, requests("memory", "150Mi"))
	a.ready("modest")
	a.run("over", []string{"hog", "60"}, requests("memory", "10Mi"))
	a.ready("over")
	a.run("greedy", []string{"hog", "400"}, requests("memory", "10Mi"))
	p := a.pod("greedy", "over", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	for _, part := range []string{"The node was low on resource: memory. Threshold quantity: 200Mi, available: ",
		"Container main was using ", ", request is 10Mi, has larger consumption of memory. "} {
		if p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, part) {
			t.Errorf("%s: %q", p.Status.Reason, p.Status.Message)
		}
	}
	if end := container(p, "main").State.Terminated; end == nil || end.Reason == "OOMKilled" {
		t.Errorf("the kernel was first: %+v", end)
	}
	a.event("NodeHasInsufficientMemory", "")
	a.event("EvictionThresholdMet", "memory")
	a.node("without pressure", func(n *corev1.Node) bool {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeMemoryPressure {
				return c.Status == corev1.ConditionFalse
			}
		}
		return false
	})
	for _, name := range []string{"modest", "over"} {
		if p := a.ready(name); container(p, "main").RestartCount != 0 {
			t.Errorf("pod %s was restarted", name)
		}
	}
}
