package rig

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestKernelSettings: changed settings are restored. Settings that this kernel does not have are ignored.
func TestKernelSettings(t *testing.T) {
	sys := t.TempDir()
	write := func(name, value string) {
		t.Helper()
		path := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("vm/overcommit_memory", "0")
	write("kernel/panic", "0")
	before, err := readKernel(sys)
	if err != nil || !maps.Equal(before, map[string]string{"vm/overcommit_memory": "0", "kernel/panic": "0"}) {
		t.Fatalf("read %v, %v", before, err)
	}
	write("vm/overcommit_memory", "1")
	write("kernel/panic", "10")
	if err := restoreKernel(sys, before); err != nil {
		t.Fatal(err)
	}
	if after, err := readKernel(sys); err != nil || !maps.Equal(after, before) {
		t.Errorf("restored to %v (%v), not to %v", after, err, before)
	}
}
