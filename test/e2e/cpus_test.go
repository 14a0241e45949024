//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
	"keelson/test/rig"
)

// TestCPUs gives a pod an exclusive CPU, on a node of its own: the pod is restricted to the
// CPU without a quota and other pods are kept off it, after a crash of the agent and under
// upstream's agent, until the pod has ended.
func TestCPUs(t *testing.T) {
	parity.Proves(t, "RES-12")
	parity.ProvesPart(t, 3, "CFG-53")
	parity.ProvesPart(t, 3, "RES-25")
	parity.Differs(t, "RES-33", "0103")
	need.Root(t, "running containers")
	if runtime.NumCPU() < 2 {
		need.Skip(t, "this machine has one CPU")
	}
	n, peer := bothAgents(t)
	static := func(c *kubeletconfig.KubeletConfiguration) {
		quick(c)
		c.CPUManagerPolicy, c.ReservedSystemCPUs = "static", "0"
	}
	n.Rig = rig.Start(t, rig.Options{
		Cluster: true,
		Runtime: &rig.RuntimeConfig{},
		Kubelet: &rig.KubeletConfig{Binary: n.ours, Edit: static},
	})
	s := n.namespace(t)
	kept := func(p *corev1.Pod) cpuset.CPUSet {
		t.Helper()
		set, err := cpuset.Parse(s.cgroupValue(p, container(p, "main").ContainerID, "cpuset.cpus", "cpuset.cpus"))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	keptTo := func(p *corev1.Pod, what string, want cpuset.CPUSet) {
		t.Helper()
		s.until(fmt.Sprintf("%s to be kept to %v %s", p.Name, want, what), func() (string, bool) {
			set := kept(p)
			return set.String(), set.Equals(want)
		})
	}
	s.create(s.demo("shares", []string{"serve"}))
	shares := s.ready("shares")
	all := kept(shares)
	s.create(s.demo("whole", []string{"serve"}, limited("1", "64Mi")))
	whole := s.ready("whole")
	own := kept(whole)
	if own.Size() != 1 || own.Contains(0) || !own.IsSubsetOf(all) {
		t.Fatalf("one CPU of %v other than 0 was asked for, it has %v", all, own)
	}
	for what, id := range map[string]string{"pod": "", "container": container(whole, "main").ContainerID} {
		if got := s.cgroupValue(whole, id, "cpu.cfs_quota_us", "cpu.max"); got != "" && got != "-1" &&
			!strings.HasPrefix(got, "max") {
			t.Errorf("the quota of the %s is %s", what, got)
		}
	}
	rest := all.Difference(own)
	keptTo(shares, "beside it", rest)
	state := func() string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(n.Kubelet.Root, "cpu_manager_state"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	written := state()
	if !strings.Contains(written, fmt.Sprintf(`%q:{"main":%q}`, whole.UID, own.String())) {
		t.Errorf("written down: %s", written)
	}
	before := instances(s.allReady(2))
	measured := s.ofCPUs()
	for _, want := range []string{"kubelet_cpu_manager_exclusive_cpu_allocation_count 1",
		"kubelet_cpu_manager_pinning_requests_total", "kubelet_cpu_manager_pinning_errors_total"} {
		if !slices.Contains(measured, want) {
			t.Errorf("of CPUs is reported\n%s\nwithout %s", strings.Join(measured, "\n"), want)
		}
	}
	stays := func(under string) {
		t.Helper()
		// Upstream's agent reports no exclusive CPUs before it has read the state.
		s.until("what is reported of CPUs "+under+" to be\n"+strings.Join(measured, "\n"), func() (string, bool) {
			got := s.ofCPUs()
			return strings.Join(got, "\n"), slices.Equal(got, measured)
		})
		if after := instances(s.allReady(2)); after != before {
			t.Errorf("%s the containers are\n%s\nbefore:\n%s", under, after, before)
		}
		// The agent has admitted another pod with the state that it has read, and terminated it.
		s.create(s.demo("another", []string{"serve"}))
		keptTo(s.ready("another"), under, rest)
		s.delete("another", 0)
		s.gone("another")
		if got := state(); got != written {
			t.Errorf("%s the state is %s\nbefore: %s", under, got, written)
		}
		if got := kept(whole); !got.Equals(own) {
			t.Errorf("%s it has %v", under, got)
		}
	}
	n.Kubelet.Kill9()
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays("after a crash")
	for _, binary := range []string{peer, n.ours} {
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		stays("under " + filepath.Base(filepath.Dir(binary)))
	}
	n.Kubelet.Kill9()
	if err := os.Truncate(filepath.Join(n.Kubelet.Root, "cpu_manager_state"), 20); err != nil {
		t.Fatal(err)
	}
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays("after its state was damaged")
	s.delete("whole", 0)
	s.gone("whole")
	keptTo(shares, "after it has ended", all)
}

// ofCPUs are the metrics of exclusive CPUs: each series, with the value if it depends only on the
// present assignments.
func (s *space) ofCPUs() (out []string) {
	s.t.Helper()
	text, err := s.Kubelet.Get(s.t.Context(), "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	for name, f := range scrape.Families(s.t, text) {
		if !strings.HasPrefix(name, "kubelet_cpu_manager_") && !strings.HasPrefix(name, "resource_manager_") &&
			!strings.HasPrefix(name, "kubelet_container_aligned_") {
			continue
		}
		for _, m := range f.Metric {
			series := name
			for _, l := range m.Label {
				series += " " + l.GetName() + "=" + l.GetValue()
			}
			if g := m.GetGauge(); g != nil {
				series += fmt.Sprintf(" %v", g.GetValue())
			}
			out = append(out, series)
		}
	}
	slices.Sort(out)
	return out
}
