//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// TestPartition freezes an agent, upstream's and then ours, for longer than the node
// controller waits. The controller sets the node's pods to not ready, also the static pod;
// they are Ready again within 10 s after the agent continues, and no container is
// restarted.
func TestPartition(t *testing.T) {
	parity.Differs(t, "LIFE-12", "0120")
	n, peer := bothAgents(t)
	n.Rig = rig.Start(t, rig.Options{})
	cluster := rig.ClusterConfig{ControllerManagerFlags: []string{"--node-monitor-grace-period=12s",
		"--node-monitor-period=1s"}}
	if _, err := n.StartCluster(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	_, err := n.StartKubelet(t.Context(),
		rig.KubeletConfig{Binary: peer, Edit: func(c *kubeletconfig.KubeletConfiguration) {
			quick(c)
			c.NodeLeaseDurationSeconds = 4
		}})
	if err != nil {
		t.Fatal(err)
	}
	for i, binary := range []string{peer, n.ours} {
		t.Run([]string{"upstream", "keelson"}[i], func(t *testing.T) {
			if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
				t.Fatal(err)
			}
			n.partition(t)
		})
	}
}

func (n *node) partition(t *testing.T) {
	s := n.namespace(t)
	s.create(s.demo("app", []string{"serve"}))
	s.manifest("fixed.yaml", s.static("fixed", "serve"))
	names := []string{"app", "fixed-" + n.Kubelet.Node}
	before := map[string]*corev1.Pod{}
	for _, name := range names {
		before[name] = s.ready(name)
	}
	pid := n.Kubelet.Pid()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	running := false
	defer func() {
		if !running {
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, name := range names {
		s.pod(name, "not Ready", func(p *corev1.Pod) bool { return !rig.PodReady(p) })
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	running = true
	back := time.Now()
	for _, name := range names {
		p := s.ready(name)
		took := time.Since(back)
		// Upstream syncs statuses every 10 s, and may have done so just before.
		if took > 11*time.Second {
			t.Errorf("%s is Ready %s after the agent's return, want 10 s at most", name, took)
		}
		t.Logf("%s is Ready %s after the agent's return", name, took.Round(time.Millisecond))
		if now, was := container(p, "main"), container(before[name], "main"); now.RestartCount != 0 ||
			now.ContainerID != was.ContainerID {
			t.Errorf("%s: %d restarts, container %s after %s", name, now.RestartCount, now.ContainerID, was.ContainerID)
		}
	}
	// The pods stay Ready over a further sync period of upstream's agent. A renewed lease shows that the agent has run.
	ready := time.Now()
	s.until("a lease that is renewed later", func() (string, bool) {
		lease, err := n.Cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(),
			n.Kubelet.Node, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		at := lease.Spec.RenewTime
		return fmt.Sprint(at), at != nil && at.Sub(ready) > 11*time.Second
	})
	for _, name := range names {
		s.pod(name, "still Ready", func(*corev1.Pod) bool { return true })
		if p := s.ready(name); p.Status.Phase != corev1.PodRunning {
			t.Errorf("%s is %s", name, p.Status.Phase)
		}
	}
}
