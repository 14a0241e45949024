//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/logind"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// shutdowns is a node on which the test can announce a shutdown.
type shutdowns struct {
	*node
	machine *logind.Manager
}

// TestShutdownIsUpstreams announces a shutdown under both agents, by a logind of the
// test's own, and compares the termination of the same pods.
func TestShutdownIsUpstreams(t *testing.T) {
	parity.Proves(t, "EVIC-37", "EVIC-40")
	need.Root(t, "running containers")
	both, peer := bothAgents(t)
	n := shutdowns{node: both}
	n.Rig = rig.Start(t, rig.Options{Cluster: true})
	bus := logind.StartBus(t)
	n.machine = logind.Start(t, bus, time.Minute)
	if _, err := n.StartKubelet(t.Context(),
		rig.KubeletConfig{Binary: n.ours, Env: []string{"DBUS_SYSTEM_BUS_ADDRESS=" + bus.Address},
			Edit: func(c *kubeletconfig.KubeletConfiguration) {
				quick(c)
				// a pod that handles SIGTERM needs little of it
				c.ShutdownGracePeriod = metav1.Duration{Duration: 20 * time.Second}
				c.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: 6 * time.Second}
			}}); err != nil {
		t.Fatal(err)
	}
	ours := n.goThrough(t)
	if err := n.Kubelet.Swap(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	theirs := n.goThrough(t)
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if ours[name] != theirs[name] {
			t.Errorf("%s:\n%s\nof upstream:\n%s", name, ours[name], theirs[name])
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("%d things to compare, upstream's %d", len(ours), len(theirs))
	}
}

// goThrough announces a shutdown and cancels it, and returns what was observed.
func (n shutdowns) goThrough(t *testing.T) map[string]string {
	t.Helper()
	s, seen := n.namespace(t), map[string]string{}
	n.machine.Await(t, 1)
	seen["lock"] = fmt.Sprint(n.machine.Locks())
	begun := time.Now().Truncate(time.Second)
	grace := func(n int64) spec { return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &n } }
	running := []string{"polite", "deaf", "short", "critical"}
	s.create(s.demo("polite", []string{"serve"}, grace(30), listening)) // it handles signals by then, too
	s.create(s.demo("deaf", []string{"deaf"}, grace(60)))
	s.create(s.demo("short", []string{"deaf"}, grace(2)))
	s.create(s.demo("critical", []string{"deaf"}, grace(60),
		func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }))
	s.create(s.demo("done", []string{"echo", "x"}, never))
	s.create(s.demo("failed", []string{"exit", "3"}, never))
	for _, name := range running {
		s.ready(name)
		if name != "polite" {
			s.deafened(name)
		}
	}
	s.phase("done", corev1.PodSucceeded)
	s.phase("failed", corev1.PodFailed)

	n.machine.Announce(t, true)
	node, err := n.Cluster.UntilNode(t.Context(), n.Kubelet.Node,
		func(no *corev1.Node) bool { return !rig.NodeReady(no) })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			seen["node"] = fmt.Sprintf("%s %s %q", c.Status, c.Reason, c.Message)
		}
	}
	const begunState, endedState = "endTime false, startTime true", "endTime true, startTime true"
	n.awaitState(t, begunState)               // not the state that an earlier shutdown has left
	late := s.demo("late", []string{"sleep"}) // bound by hand: no scheduler would
	late.Spec.NodeName = n.Kubelet.Node
	late.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	s.create(late)
	s.phase("late", corev1.PodFailed)
	s.event("late", "NodeShutdown", "Pod was rejected as the node is shutting down.")
	n.machine.Await(t, 0)
	for _, name := range append(running, "done", "failed", "late") {
		seen["pod "+name] = s.fate(name)
	}
	n.awaitState(t, endedState)
	until(t, "the event about the node", func() (string, bool) {
		list, err := n.Cluster.Client.CoreV1().Events("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=Shutdown"})
		if err != nil {
			return err.Error(), false
		}
		for _, e := range list.Items {
			if !e.LastTimestamp.Time.Before(begun) {
				seen["event"] = fmt.Sprintf("%s %s %q", e.Type, e.Reason, e.Message)
			}
		}
		return fmt.Sprint(len(list.Items)), seen["event"] != ""
	})
	n.machine.Announce(t, false)
	if _, err := n.Cluster.UntilNode(t.Context(), n.Kubelet.Node, rig.NodeReady); err != nil {
		t.Fatal(err)
	}
	return seen
}

// fate waits for the end of a pod and returns the parts of its status that describe the end.
func (s *space) fate(name string) string {
	s.t.Helper()
	p := s.pod(name, "ended", func(p *corev1.Pod) bool {
		return (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded) &&
			container(p, "main").State.Running == nil
	})
	lines := []string{fmt.Sprintf("%s %s %q", p.Status.Phase, p.Status.Reason, p.Status.Message)}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			lines = append(lines, fmt.Sprintf("%s %s %s %q", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if e := c.State.Terminated; e != nil {
			lines = append(lines, fmt.Sprintf("%s %d %s", c.Name, e.ExitCode, e.Reason))
		}
	}
	return strings.Join(lines, "\n")
}

// awaitState waits until the state file has these times, each of them set or not.
func (n shutdowns) awaitState(t *testing.T, want string) {
	t.Helper()
	until(t, "the state file to tell "+want, func() (string, bool) {
		text, err := os.ReadFile(filepath.Join(n.Kubelet.Root, "graceful_node_shutdown_state"))
		if err != nil {
			return err.Error(), false
		}
		var s map[string]time.Time
		if err := json.Unmarshal(text, &s); err != nil {
			return err.Error(), false // upstream does not write it at once
		}
		var out []string
		for _, key := range slices.Sorted(maps.Keys(s)) {
			out = append(out, fmt.Sprintf("%s %v", key, !s[key].IsZero()))
		}
		return string(text), strings.Join(out, ", ") == want
	})
}
