package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A cgroup may be removed while it is read: reads of open files then fail with ENODEV. Usage
// returns ErrNotExist.
func TestUsageOfRemovedCgroup(t *testing.T) {
	h := v1Machine(t)
	tree := liveTree(t, h, plain)
	group := filepath.Join(h.V1["memory"], tree.pods[:1].path(Cgroupfs), "goes")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(group, "memory.usage_in_bytes"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Rmdir(group); err != nil {
		t.Fatal(err)
	}
	gone := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.ReadFile(gone); !errors.Is(err, unix.ENODEV) {
		t.Fatalf("the kernel says %v", err)
	}
	v1, v2 := t.TempDir(), t.TempDir()
	for _, link := range []string{filepath.Join(v1, "memory.usage_in_bytes"), filepath.Join(v2, "cpu.stat")} {
		if err := os.Symlink(gone, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range []Hierarchies{{V1: map[string]string{"memory": v1}}, {Unified: v2}} {
		if u, err := h.Usage("/", Full); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %+v, %v", h, u, err)
		}
	}
}
