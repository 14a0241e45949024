//go:build guest

package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// used has the kernel's usage figures of one cgroup.
type used struct{ cpu, current, anon, inactive, swap, pids uint64 }

func (a *agent) used(dir string) used {
	a.t.Helper()
	number := func(file, key string) uint64 {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			a.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) == 2 && f[0] == key || key == "" {
				n, err := strconv.ParseUint(f[len(f)-1], 10, 64)
				if err != nil {
					a.t.Fatal(err)
				}
				return n
			}
		}
		a.t.Fatalf("no %s in %s of %s", key, file, dir)
		return 0
	}
	return used{
		cpu: number("cpu.stat", "usage_usec") * 1000, current: number("memory.current", ""),
		anon:     number("memory.stat", "anon"),
		inactive: number("memory.stat", "inactive_file"), swap: number("memory.swap.current", ""),
		pids: number("pids.current", ""),
	}
}

// near fails the test unless a figure is between the kernel's figures before and after, or within a mebibyte of them.
func (a *agent) near(what string, got *uint64, before, after uint64) {
	a.t.Helper()
	if got == nil {
		a.t.Errorf("%s is not reported", what)
		return
	}
	const off = 1 << 20
	if low, high := min(before, after), max(before, after); *got+off < low || *got > high+off {
		a.t.Errorf("%s is reported as %d, and the kernel counts %d, then %d", what, *got, before, after)
	}
}

// TestUsage compares the usage that the agent reports for a pod that holds memory, and for all pods, with the kernel's
// figures.
func TestUsage(t *testing.T) {
	a := agentWith(t, "", nil)
	a.run("hog", []string{"hog", "60"}, requests("memory", "100Mi"), limits("memory", "200Mi"), func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, demo("still", "sleep"))
	})
	p := a.ready("hog")
	home, main, kubepods := a.home(p), a.room(p, "main"), filepath.Join(top, a.Name, "kubepods")
	a.until("memory to be taken", func() (string, bool) {
		u := a.used(main)
		return fmt.Sprint(u), u.anon > 60<<20
	})
	before := map[string]used{home: a.used(home), main: a.used(main), kubepods: a.used(kubepods)}
	text, err := a.Get(t.Context(), "/stats/summary")
	if err != nil {
		t.Fatal(err)
	}
	resource, err := a.Get(t.Context(), "/metrics/resource")
	if err != nil {
		t.Fatal(err)
	}
	cadvisor, err := a.Get(t.Context(), "/metrics/cadvisor")
	if err != nil {
		t.Fatal(err)
	}
	after := map[string]used{home: a.used(home), main: a.used(main), kubepods: a.used(kubepods)}
	var s stats.Summary
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	memory := func(what string, m *stats.MemoryStats, dir string) {
		t.Helper()
		if m == nil {
			t.Errorf("memory of %s is not reported", what)
			return
		}
		b, f := before[dir], after[dir]
		a.near("use of "+what, m.UsageBytes, b.current, f.current)
		a.near("working set of "+what, m.WorkingSetBytes, b.current-b.inactive, f.current-f.inactive)
		a.near("resident memory of "+what, m.RSSBytes, b.anon, f.anon)
	}
	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 2 {
		t.Fatalf("pods: %s", text)
	}
	ps := s.Pods[0]
	memory("the pod", ps.Memory, home)
	for _, c := range ps.Containers {
		if c.Name == "main" {
			memory("the container", c.Memory, main)
			if c.Memory.AvailableBytes == nil || *c.Memory.AvailableBytes+*c.Memory.WorkingSetBytes != 200<<20 {
				t.Errorf("of 200 MiB %v are available beside %v", c.Memory.AvailableBytes, *c.Memory.WorkingSetBytes)
			}
		}
	}
	if ps.ProcessStats == nil || ps.ProcessStats.ProcessCount == nil || *ps.ProcessStats.ProcessCount == 0 {
		t.Errorf("processes of the pod: %+v", ps.ProcessStats)
	}
	found := false
	for _, c := range s.Node.SystemContainers {
		if c.Name == stats.SystemContainerPods {
			found = true
			memory("all pods", c.Memory, kubepods)
		}
	}
	if !found {
		t.Errorf("nothing is reported of all pods: %s", text)
	}
	if m := s.Node.Memory; m == nil || m.WorkingSetBytes == nil || m.AvailableBytes == nil || *m.WorkingSetBytes == 0 {
		t.Errorf("memory of the node: %+v", m)
	} else if total := a.server.Node(a.Node).Status.Capacity.Memory().Value(); int64(*m.WorkingSetBytes+
		*m.AvailableBytes) != total {
		t.Errorf("the node's %d bytes are %d in use and %d available", total, *m.WorkingSetBytes, *m.AvailableBytes)
	}
	b, f := before[main], after[main]
	for _, m := range []struct {
		body, series  string
		before, after uint64
	}{
		{resource, `container_memory_working_set_bytes{container="main",namespace="default",pod="hog"}`, b.current - b.inactive, f.current - f.inactive},
		{resource, `pod_memory_working_set_bytes{namespace="default",pod="hog"}`, before[home].current - before[home].inactive, after[home].current - after[home].inactive},
	} {
		v := value(t, m.body, m.series)
		a.near(m.series, &v, m.before, m.after)
	}
	const labels = `container="main"`
	for name, want := range map[string][2]uint64{
		"container_memory_usage_bytes": {b.current, f.current}, "container_memory_rss": {b.anon, f.anon},
		"container_memory_working_set_bytes": {b.current - b.inactive, f.current - f.inactive},
		"container_spec_memory_limit_bytes":  {200 << 20, 200 << 20},
	} {
		v := value(t, cadvisor, name+"{", labels)
		a.near(name, &v, want[0], want[1])
	}
}

// value returns the value of the only line that starts with begin and contains the words.
func value(t *testing.T, body, begin string, words ...string) uint64 {
	t.Helper()
	var out []uint64
lines:
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, begin) {
			continue
		}
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		_, rest, _ := strings.Cut(line, "} ")
		f, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, uint64(f))
	}
	if len(out) != 1 {
		t.Fatalf("%d series of %s %v", len(out), begin, words)
	}
	return out[0]
}
