//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	older "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"keelson/test/images"
	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

const gizmo = "example.com/gizmo"

// holdings is a node with a client of the pod resources API.
type holdings struct {
	*claims
	list  podresources.PodResourcesListerClient
	older older.PodResourcesListerClient
}

// TestPodResources queries the pod resources API of upstream's agent and ours for the same pods:
// one has an exclusive CPU, memory, a device and a claimed device, another one has the same for
// its sidecar. Both agents list pods that use resources of the node, and no others, with the same
// content in each answer. The device plugin registers through the plugin watcher.
func TestPodResources(t *testing.T) {
	parity.Proves(t, "RES-53", "RES-68", "SRV-65")
	if runtime.NumCPU() < 2 {
		need.Skip(t, "this machine has one CPU")
	}
	n, peer := bothAgents(t)
	before := numaMemory(t)
	static := func(c *kubeletconfig.KubeletConfiguration) {
		quick(c)
		c.CPUManagerPolicy, c.ReservedSystemCPUs = "static", "0"
		c.MemoryManagerPolicy = kubeletconfig.StaticMemoryManagerPolicy
		// The reserved memory is that of the eviction threshold.
		c.ReservedMemory = []kubeletconfig.MemoryReservation{{Limits: corev1.ResourceList{"memory": quantity(
			c.EvictionHard["memory.available"])}}}
	}
	n.Rig = rig.Start(t, rig.Options{
		Cluster: true,
		Runtime: &rig.RuntimeConfig{},
		Kubelet: &rig.KubeletConfig{Binary: peer, Edit: static},
	})
	var theirs, ours string
	t.Run("upstream", func(t *testing.T) { theirs = n.holdings(t).story() })
	if err := n.Kubelet.Swap(t.Context(), n.ours); err != nil {
		t.Fatal(err)
	}
	t.Run("keelson", func(t *testing.T) { ours = n.holdings(t).story() })
	if numaMemory(t) != before {
		// Memory was added to the machine, maybe between the starts of the two agents.
		changed := regexp.MustCompile(`(?m)^memory \[memory [0-9]+ at `)
		theirs, ours = changed.ReplaceAllString(theirs, "memory [memory <changed> at "), changed.ReplaceAllString(ours,
			"memory [memory <changed> at ")
	}
	for _, has := range []string{`<ns>/whole/main: CPUs \[[0-9]+\], devices \[example.com/gadget \[gadget-0\] at nodes:{}\], memory \[memory 67108864 at nodes:{}\], claims <ns>/alone .*device_name`,
		`<ns>/side/helper: CPUs \[\], devices \[example.com/gizmo \[gizmo-0\] at <nil>\], memory \[\], claims <ns>/beside .*device_name`} {
		if !regexp.MustCompile(has).MatchString(theirs) {
			t.Errorf("nothing like %s in\n%s", has, theirs)
		}
	}
	if ours != theirs {
		t.Errorf("our agent tells\n%s\nupstream's\n%s", ours, theirs)
	}
}

// numaMemory is the memory size of every NUMA node, as the kernel reports it.
func numaMemory(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("/sys/devices/system/node/node*/meminfo")
	if err != nil || len(files) == 0 {
		t.Fatal("no NUMA node found", err)
	}
	var sizes strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		total, _, _ := strings.Cut(string(text), "\n") // Node 0 MemTotal: 11757780 kB
		sizes.WriteString(total + "\n")
	}
	return sizes.String()
}

// holdings makes a DRA driver and two device plugins, all of them new to the agent.
func (n *node) holdings(t *testing.T) holdings {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.Kubelet.Root, "pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := holdings{n.namespace(t).claims(), podresources.NewPodResourcesListerClient(conn),
		older.NewPodResourcesListerClient(conn)}
	for _, resource := range []corev1.ResourceName{gadget, gizmo} {
		name := filepath.Base(string(resource))
		p := deviceplugin.New(deviceplugin.Config{
			Dir:      filepath.Join(n.Kubelet.Root, "plugins_registry"),
			Socket:   name + ".sock",
			Resource: string(resource),
		}, name+"-0")
		if resource == gadget {
			p.Place(name+"-0", 0)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
		h.nodeHas(resource, "1/1")
		h.until("the plugin to be notified", func() (string, bool) {
			reported := p.Registrations()
			return fmt.Sprint(reported), len(reported) == 1 && reported[0].PluginRegistered
		})
	}
	h.serve()
	h.offered()
	h.claim("alone", "r")
	h.claim("beside", "r")
	return h
}

// story creates and deletes pods, and records what the API reports of them.
func (h holdings) story() string {
	t := h.t
	t.Helper()
	var logged strings.Builder
	note := func(what, answer string) {
		names := strings.NewReplacer(h.name, "<driver>", h.ns, "<ns>", h.Kubelet.Node, "<node>", h.uid("alone"),
			"<alone>", h.uid("beside"), "<beside>")
		// The scheduler chooses which device a claim gets.
		answer = regexp.MustCompile(`\bdev-[0-9]+`).ReplaceAllString(names.Replace(answer), "<device>")
		fmt.Fprintf(&logged, "%s:\n%s", what, answer)
	}
	note("no pod", h.listed())
	note("the node", h.allocatable())

	// The first of these two pods uses no resources of the node any more, the second never has.
	h.says(h.demo("done", []string{"echo", "done"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gizmo: quantity("1")}
	}))
	h.create(h.demo("refused", []string{"serve"}, gadgets("2"),
		func(p *corev1.Pod) { p.Spec.NodeName = h.Kubelet.Node }))
	h.phase("refused", corev1.PodFailed)
	h.create(h.demo("plain", []string{"serve"}))
	h.create(h.demo("whole", []string{"serve"}, uses("alone"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			"cpu":    quantity("1"),
			"memory": quantity("64Mi"),
			gadget:   quantity("1"),
		}
	}))
	h.create(h.demo("side", []string{"serve"}, initContainer("first", "echo", "hi"),
		sidecar("helper", "serve", "-port", "8081"), uses("beside"), func(p *corev1.Pod) {
			helper, main := &p.Spec.InitContainers[1], &p.Spec.Containers[0]
			helper.Resources.Claims, main.Resources.Claims = main.Resources.Claims, nil
			helper.Resources.Limits = corev1.ResourceList{gizmo: quantity("1")}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name:  "another",
				Image: images.Demo,
				Args:  []string{"sleep"},
			})
		}))
	for _, name := range []string{"plain", "whole", "side"} {
		h.ready(name)
	}
	note("three pods", h.listed())
	note("three pods, as v1alpha1 reports them", h.listedOlder())
	for _, name := range []string{"whole", "plain", "done", "refused", "absent"} {
		note("pod "+name, h.reported(name))
	}
	note("the node", h.allocatable())

	// A pod that is being terminated still has its resources.
	h.create(h.demo("ending", []string{"serve"}, func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(600))
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 600}},
		}
	}))
	h.ready("ending")
	h.delete("ending", -1)
	h.event("ending", "Killing", "Stopping container main")
	note("one terminates", h.listed())
	h.delete("ending", 0)
	h.gone("ending")
	h.until("what was forced to end to be gone", func() (string, bool) {
		list := h.listed()
		return list, !strings.Contains(list, "/ending/")
	})

	for _, name := range []string{"whole", "side", "plain", "done", "refused"} {
		h.delete(name, 1)
		h.gone(name)
		note("after "+name, h.listed())
	}
	return logged.String()
}

// uid is the UID of a claim.
func (h holdings) uid(claim string) string {
	h.t.Helper()
	c, err := h.Cluster.Client.ResourceV1().ResourceClaims(h.ns).Get(h.t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return string(c.UID)
}

func (h holdings) listed() string {
	h.t.Helper()
	list, err := h.list.List(h.t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	var lines []string
	for _, p := range list.PodResources {
		lines = append(lines, lineOf(p)...)
	}
	return joined(lines)
}

func (h holdings) listedOlder() string {
	h.t.Helper()
	list, err := h.older.List(h.t.Context(), &older.ListPodResourcesRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	var lines []string
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			lines = append(lines, fmt.Sprintf("%s/%s/%s: %v", p.Namespace, p.Name, c.Name, c.Devices))
		}
	}
	return joined(lines)
}

// reported is the answer about one pod, or the error.
func (h holdings) reported(name string) string {
	h.t.Helper()
	one, err := h.list.Get(h.t.Context(), &podresources.GetPodResourcesRequest{PodNamespace: h.ns, PodName: name})
	if err != nil {
		s := status.Convert(err)
		return fmt.Sprintf("%s: %s\n", s.Code(), s.Message())
	}
	return joined(lineOf(one.PodResources))
}

func (h holdings) allocatable() string {
	h.t.Helper()
	all, err := h.list.GetAllocatableResources(h.t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	return joined([]string{fmt.Sprint("CPUs ", all.CpuIds), "devices " + devicesOf(all.Devices),
		"memory " + memoryOf(all.Memory)})
}

func lineOf(p *podresources.PodResources) (lines []string) {
	for _, c := range p.Containers {
		line := fmt.Sprintf("%s/%s/%s: CPUs %v, devices %s, memory %s, claims", p.Namespace, p.Name, c.Name, c.CpuIds,
			devicesOf(c.Devices), memoryOf(c.Memory))
		for _, claim := range c.DynamicResources {
			line += fmt.Sprintf(" %s/%s %v", claim.ClaimNamespace, claim.ClaimName, claim.ClaimResources)
		}
		lines = append(lines, line)
	}
	return lines
}

func devicesOf(list []*podresources.ContainerDevices) string {
	var out []string
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s %v at %v", d.ResourceName, d.DeviceIds, d.Topology))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func memoryOf(list []*podresources.ContainerMemory) string {
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("%s %d at %v", m.MemoryType, m.Size, m.Topology))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func joined(lines []string) string {
	slices.Sort(lines)
	return strings.Join(append(lines, ""), "\n")
}
