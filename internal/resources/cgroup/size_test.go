package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// limited is a pod whose only container has these requests and limits.
func limited(pairs ...string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{ctr(list(pairs...), list(pairs...))}}}
	p.UID = "uid-sized"
	p.Status.QOSClass = v1.PodQOSGuaranteed
	return p
}

// TestSizeV1 resizes on the kernel's own files, as far as it has them.
func TestSizeV1(t *testing.T) {
	tree := liveTree(t, v1Machine(t), plain)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	small, large := limited("cpu", "500m", "memory", "64Mi"), limited("cpu", "1", "memory", "128Mi")
	if err := tree.EnsurePod(small); err != nil {
		t.Fatal(err)
	}
	testResize(t, tree, small, large, Size{Weight: 512, Quota: 50000, Memory: 64 << 20}, Size{Weight: 1024, Quota: 100000, Memory: 128 << 20})
	if n, err := tree.MemoryUsage(small); err != nil || n < 0 {
		t.Errorf("memory usage %d, %v", n, err)
	}
	if _, _, err := tree.Size(&v1.Pod{}); err == nil {
		t.Error("the size of a cgroup that is not there")
	}
}

// TestSizeV2 resizes fixture files, in which the kernel's own words stand.
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
		for file, text := range map[string]string{"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "cpu memory\n",
			"cpu.weight": "20\n", "cpu.max": "50000 100000\n", "memory.max": "67108864\n", "memory.current": "4096\n"} {
			if err := os.WriteFile(filepath.Join(mount, dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	testResize(t, tree, small, large, Size{Weight: 20, Quota: 50000, Memory: 64 << 20}, Size{Weight: 39, Quota: 100000, Memory: 128 << 20})
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

// testResize goes from one pod's size to the other's, value by value.
func testResize(t *testing.T, tree *Tree, small, large *v1.Pod, from, to Size) {
	t.Helper()
	if now, next, err := tree.Size(small); err != nil || now != from || next != from {
		t.Errorf("at first %+v, to be %+v, %v; want %+v", now, next, err, from)
	}
	want := from
	for _, step := range []struct {
		res   v1.ResourceName
		limit bool
		done  func()
	}{
		{v1.ResourceMemory, true, func() { want.Memory = to.Memory }},
		{v1.ResourceCPU, true, func() { want.Quota = to.Quota }},
		{v1.ResourceCPU, false, func() { want.Weight = to.Weight }},
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
