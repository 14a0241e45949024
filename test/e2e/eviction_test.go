//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/parity"
)

// mayKeep gives the pod's main container a limit of ephemeral storage.
func mayKeep(amount string) spec {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: quantity(amount)}
	}
}

// TestLimitsOfLocalStorage has pods that exceed their limits of ephemeral storage: in a volume,
// in a container, and in total.
func TestLimitsOfLocalStorage(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "EVIC-25", "EVIC-26", "EVIC-27")
	parity.ProvesPart(t, 4, "VOL-39")
	s := shared(t).namespace(t)
	limit := quantity("5Mi")
	scratch := func(l *resource.Quantity) spec {
		return mounted("scratch", "/scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: l}})
	}
	fill := func(path string) string { return "dd if=/dev/zero of=" + path + " bs=1M count=8; exec sleep 100000" }
	s.create(s.shell("volume", fill("/scratch/file"), scratch(&limit)))
	s.create(s.shell("layer", fill("/file"), mayKeep("5Mi"), func(p *corev1.Pod) {
		roomy := *p.Spec.Containers[0].DeepCopy()
		roomy.Name, roomy.Command = "roomy", []string{"sleep", "100000"}
		roomy.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: quantity("1Gi")}
		p.Spec.Containers = append(p.Spec.Containers, roomy)
	}))
	s.create(s.shell("together", fill("/scratch/file"), scratch(nil), mayKeep("5Mi")))
	s.create(s.shell("modest", "echo hello; exec sleep 100000", scratch(&limit), mayKeep("5Mi")))
	for name, says := range map[string]string{
		"volume":   `Usage of EmptyDir volume "scratch" exceeds the limit "5Mi". `,
		"layer":    `Container main exceeded its local ephemeral storage limit "5Mi". `,
		"together": "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
	} {
		p := s.phase(name, corev1.PodFailed)
		if p.Status.Reason != "Evicted" || p.Status.Message != says {
			t.Errorf("pod %s: %s %q", name, p.Status.Reason, p.Status.Message)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				t.Errorf("pod %s was disrupted: %s", name, c.Message)
			}
		}
		s.event(name, "Evicted", says)
	}
	if p := s.ready("modest"); container(p, "main").RestartCount != 0 {
		t.Error("the pod within its limits was restarted")
	}
}

// TestContainerOutOfMemory checks the status of a container that the kernel kills at its memory limit.
func TestContainerOutOfMemory(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "EVIC-31")
	s := shared(t).namespace(t)
	s.create(s.demo("hog", []string{"hog", "200"}, never, limited("100m", "64Mi")))
	// The runtime gets the exit and the OOM event separately, in any order.
	p := s.pod("hog", "killed for its memory", func(p *corev1.Pod) bool {
		end := container(p, "main").State.Terminated
		return p.Status.Phase == corev1.PodFailed && end != nil && end.Reason == "OOMKilled"
	})
	if end := container(p, "main").State.Terminated; end.ExitCode != 137 {
		t.Errorf("ended as %+v", end)
	}
}

// leaving configures the memory of all pods together, and the eviction threshold.
func (n *node) leaving(t *testing.T, all, least string) {
	t.Helper()
	object, err := n.Cluster.Client.CoreV1().Nodes().Get(t.Context(), n.Kubelet.Node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reserved := object.Status.Capacity[corev1.ResourceMemory]
	reserved.Sub(quantity(all))
	n.reconfigure(t, func(c *kubeletconfig.KubeletConfiguration) {
		c.KubeReserved = map[string]string{"memory": reserved.String()}
		c.EvictionHard = map[string]string{"memory.available": least}
		c.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Second}
	})
	if err := n.Kubelet.Swap(t.Context(), n.ours); err != nil {
		t.Fatal(err)
	}
}

// TestPodsRunOutOfMemory makes all pods together use nearly all memory of pods: the pod that
// exceeds its request the most is evicted, and the node has MemoryPressure.
func TestPodsRunOutOfMemory(t *testing.T) {
	parity.Proves(t, "EVIC-05")
	parity.ProvesPart(t, 6, "EVIC-21")
	n := shared(t)
	n.leaving(t, "1Gi", "300Mi")
	s := n.namespace(t)
	s.create(s.demo("modest", []string{"hog", "20"}, requests("memory", "100Mi")))
	s.ready("modest")
	began := s.create(s.demo("greedy", []string{"hog", "820"}, requests("memory", "10Mi")))
	p := s.phase("greedy", corev1.PodFailed)
	for _, part := range []string{"The node was low on resource: memory. Threshold quantity: 300Mi, available: ",
		"Container main was using ", ", request is 10Mi, has larger consumption of memory. "} {
		if !strings.Contains(p.Status.Message, part) {
			t.Errorf("message %q", p.Status.Message)
		}
	}
	if p.Status.Reason != "Evicted" || p.UID != began.UID || !shows(p, corev1.DisruptionTarget) {
		t.Errorf("status %+v", p.Status)
	}
	e := s.event("greedy", "Evicted", p.Status.Message)
	if e.Type != corev1.EventTypeWarning || e.Annotations["starved_resource"] != "memory" ||
		e.Annotations["offending_containers"] != "main" ||
		quantityOf(e.Annotations["offending_containers_usage"]) < 300<<20 {
		t.Errorf("event %+v", e)
	}
	s.until("memory pressure on the node, and its end", func() (string, bool) {
		reported := map[string]bool{}
		list, err := s.Cluster.Client.CoreV1().Events("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + n.Kubelet.Node})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			reported[e.Reason] = true
		}
		c := conditionOf(s.nodeObject(), corev1.NodeMemoryPressure)
		return fmt.Sprint(reported, c), reported["NodeHasInsufficientMemory"] && c.Status == corev1.ConditionFalse
	})
	if p := s.ready("modest"); container(p, "main").RestartCount != 0 {
		t.Error("the pod that takes little was restarted")
	}
}

func quantityOf(text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return -1
	}
	return q.Value()
}

func conditionOf(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// TestMemoryThatGoesFast runs a program that ignores signals and allocates memory as fast as it
// can: its pod is evicted before the kernel has to kill it. The time from the threshold to the
// end is logged.
func TestMemoryThatGoesFast(t *testing.T) {
	n := shared(t)
	n.leaving(t, "2Gi", "400Mi")
	s := n.namespace(t)
	rounds := 3
	if text := os.Getenv("KEELSON_EVICTIONS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("KEELSON_EVICTIONS: %v", err)
		}
	}
	var took []time.Duration
	for i := range rounds {
		name := fmt.Sprint("fast-", i)
		watched := n.whenAllPodsUse(t, 2<<30-400<<20)
		s.create(s.demo(name, []string{"rush", "1850"}))
		p := s.phase(name, corev1.PodFailed)
		end := container(p, "main").State.Terminated
		if p.Status.Reason != "Evicted" || end == nil || end.Reason == "OOMKilled" {
			t.Fatalf("ended as %+v", p.Status)
		}
		c := watched()
		if c.gone.IsZero() {
			t.Log("no measurement between the threshold and the end")
			continue
		}
		took = append(took, c.gone.Sub(c.over))
		t.Logf("%v from the threshold to the end, %.1f GB/s before it", c.gone.Sub(c.over).Round(time.Millisecond),
			c.speed/1e9)
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	t.Logf("from the threshold to the end of the process, %d times: median %v, longest %v", len(took),
		took[len(took)/2], took[len(took)-1])
}

// crossing is when the memory of pods exceeded an amount, how fast it increased, and when the
// memory was free again.
type crossing struct {
	over, gone time.Time
	speed      float64
}

// whenAllPodsUse polls without a pause when all pods together use more than an amount, and when
// they use less again. The function that it returns is called once the program has ended.
func (n *node) whenAllPodsUse(t *testing.T, amount int64) func() crossing {
	t.Helper()
	file := ""
	for _, pattern := range []string{"/sys/fs/cgroup/memory/" + n.Name + "/kubepods/memory.usage_in_bytes",
		"/sys/fs/cgroup/" + n.Name + "/kubepods/memory.current"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			file = found[0]
		}
	}
	if file == "" {
		t.Fatal("all pods together have no cgroup")
	}
	out, ended := make(chan crossing, 1), make(chan struct{})
	go func() {
		var c crossing
		defer func() { out <- c }()
		begin, from := time.Time{}, int64(0)
		for t.Context().Err() == nil {
			select {
			case <-ended:
				if c.over.IsZero() { // it was missed
					return
				}
			default:
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return
			}
			used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err != nil {
				return
			}
			now := time.Now()
			switch {
			case c.over.IsZero() && used < amount/2:
				begin, from = now, used
			case c.over.IsZero() && used >= amount:
				c.over, c.speed = now, float64(used-from)/now.Sub(begin).Seconds()
			case !c.over.IsZero() && used < amount/2:
				c.gone = now
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return func() crossing { close(ended); return <-out }
}
