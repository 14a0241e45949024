//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/scrape"
	"keelson/test/rig"
)

// logLines are the lines that the agent has logged from an offset on.
func (n *node) logLines(t *testing.T, from int64) []string {
	t.Helper()
	data, err := os.ReadFile(n.Kubelet.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data[min(from, int64(len(data))):])), "\n")
}

func (n *node) logSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(n.Kubelet.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// complaints are the lines that are warnings or errors.
func complaints(lines []string) []string {
	var out []string
	for _, l := range lines {
		if strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR") {
			out = append(out, l)
		}
	}
	return out
}

// counted sums up the series of one of the agent's counters that have these labels, given as name, value pairs.
func (n *node) counted(t *testing.T, metric string, labels ...string) float64 {
	t.Helper()
	text, err := n.Kubelet.Get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return scrape.Total(scrape.Families(t, text)[metric], labels...)
}

// TestAPIServerAway stops the API server. Pods continue to run, a container that exits is
// restarted by its policy, the agent does not fill its log, and all statuses are up to date
// once the server is back.
func TestAPIServerAway(t *testing.T) {
	n := shared(t)
	s := n.namespace(t)
	s.create(s.demo("calm", []string{"serve"}))
	s.create(s.demo("ends", []string{"serve"}, listening))
	s.create(s.demo("done", []string{"serve"}, never, listening))
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"calm", "ends", "done"} {
		before[name] = s.ready(name)
	}
	from := n.logSize(t)
	requests := func() float64 { return n.counted(t, "rest_client_requests_total", "code", "<error>") }
	requests() // the agent authorizes the request at the API server, and caches that
	n.Cluster.KillAPIServer()
	up := false
	defer func() {
		if !up {
			if err := n.Cluster.StartAPIServer(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}()
	for name, code := range map[string]string{"ends": "3", "done": "4"} {
		if out, err := n.Runtime.Crictl(t.Context(), "exec", containerID(before[name], "main"),
			"/demo", "get", "http://localhost:8080/exit?code="+code); err == nil {
			t.Errorf("the server answered: %s", out)
		}
	}
	s.until("the ended container to be started again", func() (string, bool) {
		have, err := n.traces(t.Context())
		if err != nil {
			return err.Error(), false
		}
		kinds := have[before["ends"].UID]
		return lines(kinds), kinds["container main"] == 1 && kinds["dead container main"] == 1
	})
	const most = 12
	failed := requests()
	s.until("further requests that fail, many more than there may be complaints", func() (string, bool) {
		now := requests() - failed
		return fmt.Sprint(now), now > 4*most
	})
	if logged := complaints(n.logLines(t, from)); len(logged) > most {
		t.Errorf("%d complaints about the API server:\n%s", len(logged), strings.Join(logged, "\n"))
	}
	if err := n.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	up = true
	back := time.Now()
	p := s.pod("ends", "restarted", func(p *corev1.Pod) bool {
		return container(p, "main").RestartCount == 1 && rig.PodReady(p)
	})
	if last := container(p, "main").LastTerminationState.Terminated; last == nil || last.ExitCode != 3 {
		t.Errorf("the instance before: %+v", last)
	}
	if c := container(s.phase("done", corev1.PodFailed), "main"); c.State.Terminated == nil ||
		c.State.Terminated.ExitCode != 4 {
		t.Errorf("the container that ended: %+v", c)
	}
	if p := s.ready("calm"); container(p, "main").ContainerID != container(before["calm"], "main").ContainerID ||
		container(p, "main").RestartCount != 0 {
		t.Errorf("the pod that nothing happened to: %+v", p.Status)
	}
	t.Logf("statuses are right %s after the server was back", time.Since(back))
	s.create(s.demo("later", []string{"serve"}, func(p *corev1.Pod) { p.Spec.NodeName = n.Kubelet.Node }))
	s.ready("later")
	t.Logf("a new pod is Ready %s after the server was back", time.Since(back))
}

func containerID(p *corev1.Pod, name string) string {
	return strings.TrimPrefix(container(p, name).ContainerID, "containerd://")
}

// TestRuntimeAway stops the runtime's answers. The node becomes not Ready, and Ready again
// by itself; the outage of the runtime is logged once.
func TestRuntimeAway(t *testing.T) {
	n := shared(t)
	s := n.namespace(t)
	s.create(s.demo("calm", []string{"serve"}))
	before := s.ready("calm")
	from := n.logSize(t)
	n.Runtime.Kill9()
	down := true
	defer func() {
		if down {
			if err := n.Runtime.Start(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience,
		fmt.Errorf("the node is still Ready after %s", patience))
	defer cancel()
	at, err := n.Cluster.UntilNode(ctx, n.Kubelet.Node, func(node *corev1.Node) bool { return !rig.NodeReady(node) })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range at.Status.Conditions {
		if c.Type == corev1.NodeReady &&
			(c.Reason != "KubeletNotReady" || !strings.Contains(c.Message, "container runtime is down")) {
			t.Errorf("condition %+v", c)
		}
	}
	s.create(s.demo("waits", []string{"serve"}, func(p *corev1.Pod) { p.Spec.NodeName = n.Kubelet.Node }))
	const most = 8
	failed := n.counted(t, "kubelet_runtime_operations_errors_total")
	s.until("further calls that fail, many more than there may be complaints", func() (string, bool) {
		now := n.counted(t, "kubelet_runtime_operations_errors_total") - failed
		return fmt.Sprint(now), now > 2*most
	})
	logged := complaints(n.logLines(t, from))
	if len(logged) == 0 || len(logged) > most {
		t.Errorf("%d complaints about the runtime:\n%s", len(logged), strings.Join(logged, "\n"))
	}
	if err := n.Runtime.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	down = false
	if _, err := n.Cluster.UntilNode(ctx, n.Kubelet.Node, rig.NodeReady); err != nil {
		t.Fatal(err)
	}
	s.ready("waits")
	if p := s.ready("calm"); container(p, "main").ContainerID != container(before, "main").ContainerID {
		t.Error("the container was restarted")
	}
}
