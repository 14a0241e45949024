package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/need"
)

// A container may create threaded cgroups below its own. These do not list processes.
func TestRemoveThreadedCgroup(t *testing.T) {
	h := v2Machine(t)
	tree := liveTree(t, h, plain)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "threads"}}
	if err := tree.EnsurePod(p); err != nil {
		t.Fatal(err)
	}
	threads := filepath.Join(h.Unified, tree.Parent(p), "threads")
	if err := os.Mkdir(threads, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(threads, "cgroup.type"), []byte("threaded"), 0o644); err != nil {
		need.Skip(t, "this kernel makes no threaded cgroups", err)
	}
	if err := tree.RemovePod(t.Context(), p.UID); err != nil || !tree.Gone(p.UID) {
		t.Errorf("%v, gone %v", err, tree.Gone(p.UID))
	}
}
