//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/parity"
)

// limited gives the pod's main container requests and limits of these amounts.
func limited(cpu, memory string) spec {
	return func(p *corev1.Pod) {
		l := corev1.ResourceList{"cpu": quantity(cpu), "memory": quantity(memory)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: l, Limits: l}
	}
}

// resize patches the main container's requests and limits, as a user does.
func (s *space) resize(name, cpu, memory string) {
	s.t.Helper()
	amounts := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, cpu, memory)
	s.kubectlDo("patch", "pod", name, "--subresource=resize", "--patch",
		fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":%s,"limits":%s}}]}}`, amounts,
			amounts))
}

// resized waits until the pod has the resources of its specification.
func (s *space) resized(name string) *corev1.Pod {
	s.t.Helper()
	return s.pod(name, "resized", func(p *corev1.Pod) bool {
		return p.Status.ObservedGeneration == p.Generation && !shows(p, corev1.PodResizePending) &&
			!shows(p, corev1.PodResizeInProgress) &&
			sameAmounts(container(p, "main"), p.Spec.Containers[0].Resources)
	})
}

func shows(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return true
		}
	}
	return false
}

func sameAmounts(cs corev1.ContainerStatus, want corev1.ResourceRequirements) bool {
	if cs.Resources == nil {
		return false
	}
	for _, pair := range [][2]corev1.ResourceList{{cs.Resources.Requests, want.Requests},
		{cs.Resources.Limits, want.Limits}, {cs.AllocatedResources, want.Requests}} {
		for name, q := range pair[1] {
			have := pair[0][name]
			if have.Cmp(q) != 0 {
				return false
			}
		}
	}
	return true
}

// cgroupValue reads a file of the pod's cgroup, or of a container's below it. It is
// empty where the machine has no such file.
func (s *space) cgroupValue(p *corev1.Pod, containerID, v1File, v2File string) string {
	s.t.Helper()
	below := ""
	if _, id, ok := strings.Cut(containerID, "://"); ok {
		below = id
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + s.Name + "/kubepods/",
		"/sys/fs/cgroup/" + s.Name + "/kubepods/"} {
		for _, class := range []string{"", "burstable/", "besteffort/"} {
			for _, file := range []string{v1File, v2File} {
				found, err := filepath.Glob(filepath.Join(pattern+class+"pod"+string(p.UID), below, file))
				if err != nil || len(found) == 0 {
					continue
				}
				b, err := os.ReadFile(found[0])
				if err != nil {
					s.t.Fatal(err)
				}
				return strings.TrimSpace(string(b))
			}
		}
	}
	return ""
}

// hasCgroups compares the kernel's limits of the pod and its main container
// with amounts that are the same for both. CPU is in thousandths.
func (s *space) hasCgroups(p *corev1.Pod, milli, memory int64) {
	s.t.Helper()
	shares := milli * 1024 / 1000
	for what, id := range map[string]string{"pod": "", "container": container(p, "main").ContainerID} {
		wants := map[string][2]string{ // v1 file → what v1 and v2 have
			"cpu.shares":            {fmt.Sprint(shares), fmt.Sprint(1 + (shares-2)*9999/262142)},
			"cpu.cfs_quota_us":      {fmt.Sprint(milli * 100), fmt.Sprintf("%d 100000", milli*100)},
			"memory.limit_in_bytes": {fmt.Sprint(memory), fmt.Sprint(memory)},
		}
		for v1File, want := range wants {
			v2File := map[string]string{
				"cpu.shares":            "cpu.weight",
				"cpu.cfs_quota_us":      "cpu.max",
				"memory.limit_in_bytes": "memory.max",
			}[v1File]
			if what == "container" && v1File == "cpu.shares" {
				// the OCI runtime converts shares of containers to v2 weights with its own formula
				want[1] = s.cgroupValue(p, id, v1File, v2File)
			}
			got := s.cgroupValue(p, id, v1File, v2File)
			switch got {
			case want[0], want[1]:
			case "":
				s.t.Logf("the machine has no %s: nothing to compare", v1File)
			default:
				s.t.Errorf("%s: %s is %s, want %s", what, v1File, got, want[0])
			}
		}
	}
}

// TestResize changes the CPU and memory of a running pod, up and down, and reads the
// limits in the cgroups.
func TestResize(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"}, limited("100m", "64Mi")))
	before := s.ready("web")
	s.hasCgroups(before, 100, 64<<20)
	for _, step := range []struct {
		cpu, memory  string
		milli, bytes int64
	}{
		{"200m", "96Mi", 200, 96 << 20},
		{"150m", "128Mi", 150, 128 << 20},
		{"100m", "80Mi", 100, 80 << 20},
	} {
		s.resize("web", step.cpu, step.memory)
		p := s.resized("web")
		s.hasCgroups(p, step.milli, step.bytes)
		if a, b := container(before, "main"), container(p, "main"); a.ContainerID != b.ContainerID ||
			b.RestartCount != 0 {
			t.Errorf("the container was replaced: %s, then %s after %d restarts", a.ContainerID, b.ContainerID,
				b.RestartCount)
		}
	}
	s.event("web", "ResizeStarted",
		`Pod resize started: {"containers":[{"name":"main","resources":{"limits":{"cpu":"200m","memory":"96Mi"},"requests":{"cpu":"200m","memory":"96Mi"}}}],"generation":2}`)
	s.event("web", "ResizeCompleted", `"generation":4}`)
}

// TestResizeInOppositeDirections increases requests while limits decrease, and the reverse.
func TestResizeInOppositeDirections(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	type amounts struct{ cpuRequest, memoryRequest, cpuLimit, memoryLimit string }
	was := amounts{"20m", "35Mi", "30m", "45Mi"}
	s.create(s.demo("web", []string{"sleep"}, onFailure, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": quantity(was.cpuRequest), "memory": quantity(was.memoryRequest)},
			Limits:   corev1.ResourceList{"cpu": quantity(was.cpuLimit), "memory": quantity(was.memoryLimit)}}
	}))
	before := s.ready("web")
	for _, next := range []amounts{{"15m", "40Mi", "35m", "40Mi"}, was, {"25m", "30Mi", "25m", "50Mi"}, was} {
		s.kubectlDo("patch", "pod", "web", "--subresource=resize", "--patch",
			fmt.Sprintf(
				`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q,"memory":%q},"limits":{"cpu":%q,"memory":%q}}}]}}`,
				next.cpuRequest,
				next.memoryRequest,
				next.cpuLimit,
				next.memoryLimit,
			))
		p := s.resized("web")
		limit := quantity(next.memoryLimit)
		if got := s.cgroupValue(p, container(p, "main").ContainerID,
			"memory.limit_in_bytes", "memory.max"); got != "" && got != fmt.Sprint(limit.Value()) {
			t.Errorf("%+v: the kernel limits memory to %s", next, got)
		}
		if a, b := container(before, "main"), container(p, "main"); a.ContainerID != b.ContainerID ||
			b.RestartCount != 0 {
			t.Errorf("%+v: the container was replaced: %s, then %s", next, a.ContainerID, b.ContainerID)
		}
	}
}

// TestResizeBelowUsage requests less memory than is in use, and reverts that.
func TestResizeBelowUsage(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"}, limited("100m", "64Mi")))
	before := s.ready("web")
	s.resize("web", "100m", "10Ki")
	p := s.pod("web", "in progress with an error", func(p *corev1.Pod) bool {
		return shows(p, corev1.PodResizeInProgress) &&
			condition(p, corev1.PodResizeInProgress).Reason == corev1.PodReasonError
	})
	c := condition(p, corev1.PodResizeInProgress)
	if !strings.Contains(c.Message, "memory limit (8192) below current usage") &&
		!strings.Contains(c.Message, "memory limit (10240) below current usage") ||
		c.ObservedGeneration != p.Generation {
		t.Errorf("condition %+v of generation %d", c, p.Generation)
	}
	s.event("web", "ResizeError", "below current usage")
	s.hasCgroups(p, 100, 64<<20)
	s.resize("web", "100m", "64Mi")
	if after := s.resized("web"); container(after, "main").ContainerID != container(before, "main").ContainerID {
		t.Error("the container was replaced")
	}
	// The request exceeds the free resources of the node: the resize is deferred, and a condition reports it.

	allocatable := s.nodeObject().Status.Allocatable["cpu"]
	all := allocatable.String()
	s.create(s.demo("other", []string{"sleep"}, requests("cpu", "10m")))
	s.ready("other")
	s.resize("web", all, "64Mi")
	p = s.pod("web", "deferred", func(p *corev1.Pod) bool { return shows(p, corev1.PodResizePending) })
	if c := condition(p, corev1.PodResizePending); c.Reason != corev1.PodReasonDeferred ||
		!strings.Contains(c.Message, "Node didn't have enough resource: cpu") {
		t.Errorf("%+v", c)
	}
	s.hasCgroups(p, 100, 64<<20)
	s.resize("web", "110m", "64Mi")
	s.hasCgroups(s.resized("web"), 110, 64<<20)
}

// TestResizeByRestart resizes a container with the resize policy RestartContainer for memory.
func TestResizeByRestart(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"}, limited("100m", "64Mi"), onFailure, func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: "memory", RestartPolicy: corev1.RestartContainer},
			{ResourceName: "cpu", RestartPolicy: corev1.NotRequired},
		}
	}))
	s.ready("web")
	s.resize("web", "200m", "64Mi")
	if p := s.resized("web"); container(p, "main").RestartCount != 0 {
		t.Errorf("restarted %d times for CPU", container(p, "main").RestartCount)
	}
	for i, memory := range []string{"128Mi", "64Mi"} {
		s.resize("web", "100m", memory)
		p := s.resized("web")
		if n := container(p, "main").RestartCount; int(n) != i+1 {
			t.Errorf("restarted %d times, want %d", n, i+1)
		}
		bytes := quantity(memory)
		s.hasCgroups(s.ready("web"), 100, bytes.Value())
	}
	// A restart for a resize does not count as a crash.
	for _, e := range s.events("web") {
		if e.Reason == "BackOff" {
			t.Errorf("%s: %s", e.Reason, e.Message)
		}
	}
}

// TestPodLevelResources gives a pod pod-level resources, which also apply to its containers
// without resources, and changes them while it runs.
func TestPodLevelResources(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 2, "LIFE-130")
	s := shared(t).namespace(t)
	whole := func(cpu, memory string) *corev1.ResourceRequirements {
		l := corev1.ResourceList{"cpu": quantity(cpu), "memory": quantity(memory)}
		return &corev1.ResourceRequirements{Requests: l, Limits: l}
	}
	s.create(s.demo("web", []string{"serve"}, func(p *corev1.Pod) { p.Spec.Resources = whole("200m", "96Mi") }))
	p := s.ready("web")
	id := container(p, "main").ContainerID
	if p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("class %s", p.Status.QOSClass)
	}
	check := func(p *corev1.Pod, milli, memory int64) {
		t.Helper()
		for _, at := range []struct{ id, v1File, v2File, want string }{
			{"", "cpu.shares", "cpu.weight", fmt.Sprint(milli * 1024 / 1000)},
			{"", "cpu.cfs_quota_us", "cpu.max", fmt.Sprint(milli * 100)},
			{"", "memory.limit_in_bytes", "memory.max", fmt.Sprint(memory)},
			{id, "cpu.cfs_quota_us", "cpu.max", fmt.Sprint(milli * 100)},
			{id, "memory.limit_in_bytes", "memory.max", fmt.Sprint(memory)},
		} {
			got, _, _ := strings.Cut(s.cgroupValue(p, at.id, at.v1File, at.v2File), " ")
			if at.v1File == "cpu.shares" && got == fmt.Sprint(1+(milli*1024/1000-2)*9999/262142) {
				continue
			}
			if got != at.want && got != "" {
				t.Errorf("%s of %q is %s, want %s", at.v1File, at.id, got, at.want)
			}
		}
	}
	check(p, 200, 96<<20)
	for _, step := range []struct {
		cpu, memory  string
		milli, bytes int64
	}{{"300m", "128Mi", 300, 128 << 20}, {"100m", "64Mi", 100, 64 << 20}} {
		l := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, step.cpu, step.memory)
		s.kubectlDo("patch", "pod", "web", "--subresource=resize", "--patch",
			fmt.Sprintf(`{"spec":{"resources":{"requests":%s,"limits":%s}}}`, l, l))
		want := whole(step.cpu, step.memory)
		p = s.pod("web", "resized", func(p *corev1.Pod) bool {
			return p.Status.Resources != nil && p.Status.Resources.Limits.Memory().Cmp(*want.Limits.Memory()) == 0 &&
				p.Status.Resources.Requests.Cpu().Cmp(*want.Requests.Cpu()) == 0 &&
				!shows(p, corev1.PodResizePending) && !shows(p, corev1.PodResizeInProgress)
		})
		check(p, step.milli, step.bytes)
	}
	if c := container(p, "main"); c.ContainerID != id || c.RestartCount != 0 {
		t.Errorf("the container was replaced: %s, then %s", id, c.ContainerID)
	}
}

// TestResizeAcrossASwap resizes a pod under upstream's agent and under this one; each takes
// over the allocated resources of the other.
func TestResizeAcrossASwap(t *testing.T) {
	parity.Proves(t, "LIFE-128")
	n := shared(t)
	peer, err := n.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	s := n.namespace(t)
	s.create(s.demo("web", []string{"serve"}, limited("100m", "64Mi")))
	id := container(s.ready("web"), "main").ContainerID
	s.resize("web", "110m", "64Mi")
	s.resized("web")
	// A resize that is not actuated must not be used as the allocated resources.
	allocatable := s.nodeObject().Status.Allocatable["cpu"]
	all := allocatable.String()
	s.create(s.demo("other", []string{"sleep"}, requests("cpu", "10m")))
	s.ready("other")
	s.resize("web", all, "64Mi")
	s.pod("web", "deferred", func(p *corev1.Pod) bool { return shows(p, corev1.PodResizePending) })
	for i, binary := range []string{peer, n.ours} {
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		late := fmt.Sprintf("late-%d", i)
		s.create(s.demo(late, []string{"serve"})) // this shows that the new agent works
		s.ready(late)
		p := s.pod("web", "deferred still", func(p *corev1.Pod) bool { return shows(p, corev1.PodResizePending) })
		granted := container(p, "main").AllocatedResources["cpu"]
		if got := granted.String(); got != "110m" || container(p, "main").ContainerID != id {
			t.Errorf("after swap %d: granted %s to %s, want 110m to %s", i+1, got, container(p, "main").ContainerID, id)
		}
		for _, name := range []string{"allocated_pods_state", "actuated_pods_state"} {
			s.granted(filepath.Join(n.Kubelet.Root, name), p, "110m")
		}
	}
	s.resize("web", "120m", "64Mi")
	s.hasCgroups(s.resized("web"), 120, 64<<20)
	if left, err := filepath.Glob(filepath.Join(n.Kubelet.Root, "*.bad")); err != nil || len(left) > 0 {
		t.Errorf("put aside: %v, %v", left, err)
	}
}

// granted waits until a state file has this amount of CPU for the pod.
func (s *space) granted(path string, p *corev1.Pod, want string) {
	s.t.Helper()
	s.until(path, func() (string, bool) {
		b, err := os.ReadFile(path)
		if err != nil {
			return err.Error(), false
		}
		var file struct{ Data string }
		var state struct {
			Entries map[string]struct {
				ContainerResources map[string]corev1.ResourceRequirements
			}
		}
		if err := json.Unmarshal(b, &file); err != nil {
			return err.Error(), false
		}
		if err := json.Unmarshal([]byte(file.Data), &state); err != nil {
			return err.Error(), false
		}
		cpu := state.Entries[string(p.UID)].ContainerResources["main"].Requests["cpu"]
		return cpu.String(), cpu.String() == want
	})
}

// nodeObject reads the node object.
func (s *space) nodeObject() *corev1.Node {
	s.t.Helper()
	n, err := s.Cluster.Client.CoreV1().Nodes().Get(s.t.Context(), s.Kubelet.Node, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
