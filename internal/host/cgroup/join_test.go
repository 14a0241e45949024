package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// TestJoin moves a process of the test's own.
func TestJoin(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-50")
	parity.ProvesPart(t, 4, "RES-18")
	need.Root(t, "making control groups")
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/keelson-join-%d/kubelet", os.Getpid())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		for _, m := range h.mounts() {
			for _, dir := range []string{group, filepath.Dir(group)} {
				if err := os.Remove(filepath.Join(m, dir)); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			}
		}
	})
	for range 2 { // once there, it stays there
		if err := h.Join(group, cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if got := groupOf(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid), h.V2()); got != group {
		t.Errorf("it is in %q, want %q", got, group)
	}
	if err := h.Join(group, 1<<30); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

// TestGather uses a directory in place of a cgroup hierarchy: the test must not move the processes
// of the machine.
func TestGather(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-50")
	parity.ProvesPart(t, 4, "RES-18")
	root := t.TempDir()
	h := Hierarchies{V1: map[string]string{"memory": root}}
	// Process 2 is a kernel thread, except in a container.
	list := fmt.Sprintf("1\n2\n%d\n%d\n", 1<<30, os.Getpid())
	if err := os.WriteFile(filepath.Join(root, procsFile), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Readlink("/proc/2/exe"); err == nil {
		t.Log("process 2 has a program here and is taken along")
	}
	if err := h.Gather("system"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "system", procsFile))
	if err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(os.Getpid()) {
		t.Errorf("moved last: %q, %v; want this process", got, err)
	}
}
