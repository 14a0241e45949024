package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// limited returns a pod whose only container has these requests and limits.
func limited(pairs ...string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{ctr(list(pairs...), list(pairs...))}}}
	p.UID = "uid-sized"
	p.Status.QOSClass = v1.PodQOSGuaranteed
	return p
}

// TestSizeV1 resizes a real cgroup.
func TestSizeV1(t *testing.T) {
	tree := liveTree(t, v1Machine(t), plain)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	small, large := limited("cpu", "500m", "memory", "64Mi"), limited("cpu", "1", "memory", "128Mi")
	if err := tree.EnsurePod(small); err != nil {
		t.Fatal(err)
	}
	testResize(t, tree, small, large,
		Size{Weight: 512, Shares: 512, Quota: 50000, Period: 100000, Memory: 64 << 20},
		Size{Weight: 1024, Shares: 1024, Quota: 100000, Period: 100000, Memory: 128 << 20}, 512)
	if n, err := tree.MemoryUsage(small); err != nil || n < 0 {
		t.Errorf("memory usage %d, %v", n, err)
	}
	if _, _, err := tree.Size(&v1.Pod{}); err == nil {
		t.Error("the size of a cgroup that is not there")
	}
}

// TestSizeV2 resizes fixture files with content as the kernel writes it.
func TestSizeV2(t *testing.T) {
	mount := t.TempDir()
	tree, err := New(Config{Driver: Cgroupfs, Hierarchies: Hierarchies{Unified: mount}, Pod: plain})
	if err != nil {
		t.Fatal(err)
	}
	small, large := limited("cpu", "500m", "memory", "64Mi"), limited("cpu", "1", "memory", "128Mi")
	for _, dir := range []string{"", "kubepods", "kubepods/poduid-sized"} {
		if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"cgroup.controllers":     "cpu memory\n",
			"cgroup.subtree_control": "cpu memory\n",
			"cpu.weight":             "20\n",
			"cpu.max":                "50000 100000\n",
			"memory.max":             "67108864\n",
			"memory.current":         "4096\n",
		} {
			if err := os.WriteFile(filepath.Join(mount, dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	testResize(t, tree, small, large,
		Size{Weight: 20, Shares: 512, Quota: 50000, Period: 100000, Memory: 64 << 20},
		Size{Weight: 39, Shares: 1024, Quota: 100000, Period: 100000, Memory: 128 << 20}, 500)
	if n, err := tree.MemoryUsage(small); err != nil || n != 4096 {
		t.Errorf("memory usage %d, %v", n, err)
	}
	dir := filepath.Join(mount, "kubepods/poduid-sized")
	for file, text := range map[string]string{"cpu.max": "max 100000\n", "memory.max": "max\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if now, _, err := tree.Size(small); err != nil || now.Quota != Unlimited || now.Memory != Unlimited {
		t.Errorf("without limits: %+v, %v", now, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte("much\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if now, _, err := tree.Size(small); err == nil {
		t.Errorf("a file that makes no sense reads as %+v", now)
	}
}

// testResize changes the cgroup from the size of one pod to that of the other, value by value. read is the initial
// weight, converted to shares.
func testResize(t *testing.T, tree *Tree, small, large *v1.Pod, from, to Size, read int64) {
	t.Helper()
	if now, next, err := tree.Size(small); err != nil || now != from || next != from {
		t.Errorf("at first %+v, to be %+v, %v; want %+v", now, next, err, from)
	}
	want := from
	want.Shares = read
	for _, step := range []struct {
		res   v1.ResourceName
		limit bool
		done  func()
	}{
		{v1.ResourceMemory, true, func() { want.Memory = to.Memory }},
		{v1.ResourceCPU, true, func() { want.Quota = to.Quota }},
		{v1.ResourceCPU, false, func() { want.Weight, want.Shares = to.Weight, to.Shares }},
	} {
		if err := tree.Resize(large, step.res, step.limit); err != nil {
			t.Fatal(err)
		}
		step.done()
		if now, next, err := tree.Size(large); err != nil || now != want || next != to {
			t.Errorf("after %s: %+v, to be %+v, %v; want %+v, %+v", step.res, now, next, err, want, to)
		}
	}
}

// If one container of a pod has no limit, the pod has none, and its cgroup is left unchanged.
func TestSizeWithoutLimits(t *testing.T) {
	mount := t.TempDir()
	tree, err := New(Config{Driver: Cgroupfs, Hierarchies: Hierarchies{Unified: mount}, Pod: plain})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(mount, "kubepods/burstable/poduid-sized")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := limited("cpu", "20m", "memory", "10000000")
	p.Status.QOSClass = v1.PodQOSBurstable
	free := p.DeepCopy()
	free.Spec.Containers = append(free.Spec.Containers, v1.Container{})
	for _, tc := range []struct {
		name               string
		p                  *v1.Pod
		weight, quota, mem string
		now, next          Size
	}{
		{
			name:   "no limit",
			p:      free,
			weight: "3",
			quota:  "max 50000",
			mem:    "max",
			now:    Size{Weight: 3, Shares: 54, Quota: Unlimited, Period: 50000, Memory: Unlimited},
			next:   Size{Weight: 1, Shares: 20, Quota: Unlimited, Period: 50000, Memory: Unlimited},
		},
		{
			name:   "a limit that another client has set",
			p:      free,
			weight: "1",
			quota:  "3000 50000",
			mem:    "4096",
			now:    Size{Weight: 1, Shares: 20, Quota: 3000, Period: 50000, Memory: 4096},
			next:   Size{Weight: 1, Shares: 20, Quota: 3000, Period: 50000, Memory: 4096},
		},
		{
			name:   "limits of all, which the kernel counts in pages",
			p:      p,
			weight: "1",
			quota:  "2000 100000",
			mem:    "9998336",
			now:    Size{Weight: 1, Shares: 20, Quota: 2000, Period: 100000, Memory: 9998336},
			next:   Size{Weight: 1, Shares: 20, Quota: 2000, Period: 100000, Memory: 9998336},
		},
		{
			name:   "limits of all that are new",
			p:      p,
			weight: "1",
			quota:  "max 100000",
			mem:    "max",
			now:    Size{Weight: 1, Shares: 20, Quota: Unlimited, Period: 100000, Memory: Unlimited},
			next:   Size{Weight: 1, Shares: 20, Quota: 2000, Period: 100000, Memory: 10000000},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for file, text := range map[string]string{
				"cpu.weight": tc.weight,
				"cpu.max":    tc.quota,
				"memory.max": tc.mem,
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if now, next, err := tree.Size(tc.p); err != nil || now != tc.now || next != tc.next {
				t.Errorf("now %+v, to be %+v, %v\nwant %+v, to be %+v", now, next, err, tc.now, tc.next)
			}
		})
	}
}
