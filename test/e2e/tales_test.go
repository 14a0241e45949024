//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/rig"
)

// TestStatusesTellWhatUpstreamsDo runs the same pods on one node under upstream's agent and
// under ours. Each status of ours is also a status of upstream's agent at some time, except that
// the containers have ended before the pod has, and the last statuses of ended pods are the
// same.
func TestStatusesTellWhatUpstreamsDo(t *testing.T) {
	n, peer := bothAgents(t)
	n.Rig = rig.Start(t, rig.Options{
		Cluster: true,
		Runtime: &rig.RuntimeConfig{},
		Kubelet: &rig.KubeletConfig{Binary: peer, Edit: quick},
	})
	var theirs, ours tales
	t.Run("upstream", func(t *testing.T) { theirs = n.tales(t) })
	if err := n.Kubelet.Swap(t.Context(), n.ours); err != nil {
		t.Fatal(err)
	}
	t.Run("keelson", func(t *testing.T) { ours = n.tales(t) })
	if t.Failed() {
		return // the statuses are incomplete
	}
	for name, tale := range theirs {
		reported := func(of []telling) (list []string) {
			for _, s := range of {
				list = append(list, s.pod)
			}
			return list
		}
		for _, s := range ours[name] {
			if !slices.Contains(reported(tale), s.pod) && s.pod != over {
				t.Errorf("of %s our agent tells\n  %s\nand upstream's only\n  %s", name, s.pod,
					strings.Join(slices.Compact(reported(tale)), "\n  "))
			}
		}
		last, want := ours[name][len(ours[name])-1], tale[len(tale)-1]
		if last != want && slices.Contains(ended, name) {
			t.Errorf("of %s our agent tells at last\n  %s\n  %s\nand upstream's\n  %s\n  %s", name, last.pod,
				last.containers, want.pod, want.containers)
		}
	}
}

// tales are the successive statuses of pods, by their names.
type tales map[string][]telling

// telling is the text of a status: that of the pod, and that of its containers.
type telling struct{ pod, containers string }

// tales runs the pods and records their statuses.
func (n *node) tales(t *testing.T) tales {
	s := n.namespace(t)
	heard := tales{}
	watch, err := n.Cluster.Client.CoreV1().Pods(s.ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var hearing sync.WaitGroup
	hearing.Go(func() {
		for e := range watch.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Status.StartTime != nil {
				heard[p.Name] = append(heard[p.Name], tell(p))
			}
		}
	})
	s.live()
	watch.Stop()
	hearing.Wait()
	s.kubectlDo("delete", "pods", "--all", "--grace-period=1") // so that the next pods have free resources
	return heard
}

// over is the status of a pod whose containers have ended and that has not been cleaned up yet.
const over = "Running , ContainersReady False ContainersNotReady, Initialized True , PodScheduled True , Ready False ContainersNotReady"

// ended are the pods that come to an end.
var ended = []string{"job", "job-with-sidecar", "never-begins", "over-its-deadline", "elsewhere", "makes-room"}

// live starts, changes and ends pods. Each state to be observed lasts for seconds.
func (s *space) live() {
	// stays exits with 0 at SIGTERM, lingers five seconds later.
	const stays, lingers = "trap 'exit 0' TERM; sleep 1000 & wait", "trap 'sleep 5; exit 0' TERM; sleep 1000 & wait"
	first := func(name, script string) spec {
		return func(p *corev1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, another(p, name, script)) }
	}
	beside := func(name, script string) spec {
		return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, another(p, name, script)) }
	}
	sidecar := func(p *corev1.Pod) {
		c := another(p, "side", "exec sleep 1000")
		c.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	asks := func(cpu string) spec {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	within := func(seconds int64) spec {
		return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
	}

	s.create(s.shell("loses-sandbox", stays, first("init", "sleep 4")))
	s.create(s.shell("loses-sandbox-with-sidecar", stays, sidecar, first("init", "sleep 4")))
	s.create(s.shell("crashes", "sleep 2; exit 1", onFailure))
	s.create(s.shell("job", "sleep 2", never, first("init", "sleep 2"), beside("longer", "sleep 7; exit 3")))
	s.create(s.shell("job-with-sidecar", "sleep 4", never, sidecar, within(5)))
	s.create(s.shell("never-begins", stays, never, first("init", "sleep 2; exit 4")))
	s.create(s.shell("begins-in-vain", stays, first("init", "sleep 2; exit 4")))
	s.create(s.shell("over-its-deadline", lingers, within(20), func(p *corev1.Pod) {
		p.Spec.ActiveDeadlineSeconds = ptr(int64(20)) // it has to run by then, also on a busy machine
	}))
	s.create(s.shell("no-such-command", stays,
		func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/nothing"} }))
	s.create(s.shell("no-image", stays, func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "keelson.invalid/none:1", corev1.PullNever
	}))
	s.create(s.shell("gated", stays, func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}))
	s.create(s.shell("elsewhere", stays, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.NodeSelector = s.Kubelet.Node, map[string]string{"example.com/no": "node"}
	}))
	s.create(s.shell("deleted", lingers, sidecar, within(20)))
	s.create(s.shell("makes-room", lingers, within(20), asks("1100m")))

	for _, name := range []string{"loses-sandbox", "loses-sandbox-with-sidecar"} {
		s.loseSandbox(s.ready(name))
		// On a busy machine a runtime may take so long to end the sandbox that a start in it fails first.
		s.pod(name, "ready again", func(p *corev1.Pod) bool {
			return isTrue(p, corev1.PodReady) && container(p, "main").RestartCount >= 1
		})
	}
	s.ready("deleted")
	s.kubectlDo("delete", "pod", "deleted")
	s.ready("makes-room")
	s.create(s.shell("needs-room", stays, asks("1800m"), func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.PriorityClassName = s.Kubelet.Node, "system-node-critical"
	}))
	s.ready("needs-room")
	for _, name := range ended {
		s.pod(name, "at its end", func(p *corev1.Pod) bool {
			return (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded) &&
				!isTrue(p, corev1.PodReadyToStartContainers)
		})
	}
	for _, c := range [][2]string{{"crashes", "main"}, {"begins-in-vain", "init"}, {"no-such-command", "main"}} {
		s.pod(c[0], "left alone for a while", func(p *corev1.Pod) bool {
			st := container(p, c[1])
			return st.RestartCount > 0 && st.State.Waiting != nil && st.State.Waiting.Reason == "CrashLoopBackOff"
		})
	}
	s.pod("no-image", "waiting", func(p *corev1.Pod) bool {
		w := container(p, "main").State.Waiting
		return w != nil && w.Reason == "ErrImageNeverPull"
	})
	s.pod("gated", "waiting", func(p *corev1.Pod) bool { return isTrue(p, corev1.ContainersReady) })
}

func another(p *corev1.Pod, name, script string) corev1.Container {
	c := *p.Spec.Containers[0].DeepCopy()
	c.Name, c.Command = name, []string{"sh", "-c", script}
	return c
}

// loseSandbox stops the pod's sandbox without the agent.
func (s *space) loseSandbox(p *corev1.Pod) {
	s.t.Helper()
	of := map[string]string{"io.kubernetes.pod.uid": string(p.UID)}
	list, err := s.Runtime.CRI.ListPodSandbox(s.t.Context(),
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: of}})
	if err != nil || len(list.Items) != 1 {
		s.t.Fatalf("sandboxes of %s: %v, %v", p.Name, list, err)
	}
	if _, err := s.Runtime.CRI.StopPodSandbox(s.t.Context(),
		&cri.StopPodSandboxRequest{PodSandboxId: list.Items[0].Id}); err != nil {
		s.t.Fatal(err)
	}
}

// tell is the text of a status. The condition of the sandbox is left out: our agent reports it
// together with later changes.
func tell(p *corev1.Pod) telling {
	var of, containers strings.Builder
	fmt.Fprintf(&of, "%s %s", p.Status.Phase, p.Status.Reason)
	conditions := slices.SortedFunc(slices.Values(p.Status.Conditions),
		func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	for _, c := range conditions {
		if c.Type != corev1.PodReadyToStartContainers {
			fmt.Fprintf(&of, ", %s %s %s", c.Type, c.Status, c.Reason)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		fmt.Fprintf(&containers, "%s: %s", c.Name, phaseOf(c.State))
		if c.LastTerminationState.Terminated != nil {
			fmt.Fprintf(&containers, ", before %s", phaseOf(c.LastTerminationState))
		}
		fmt.Fprintf(&containers, ", %d restarts, ready %t, started %t; ", c.RestartCount, c.Ready,
			c.Started != nil && *c.Started)
	}
	return telling{of.String(), containers.String()}
}

func phaseOf(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf("ended %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
	}
	return "running"
}

func isTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}
