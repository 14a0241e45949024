package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLimitsSwap: the root of a cgroup v2 hierarchy has no file for the swap limit.
func TestLimitsSwap(t *testing.T) {
	for _, c := range []struct {
		name, file string
		v2, want   bool
	}{
		{"version 2: in a cgroup below the root", "init/memory.swap.max", true, true},
		{"version 2: the agent's view begins below the root", "memory.swap.max", true, true},
		{"version 2: a kernel that counts no swap", "init/memory.max", true, false},
		{"version 1", "memory/memory.memsw.limit_in_bytes", false, true},
		{"version 1: a kernel that counts no swap", "memory/memory.limit_in_bytes", false, false},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, c.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := LimitsSwap(dir, c.v2); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
