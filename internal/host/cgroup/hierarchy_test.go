package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"keelson/test/kit/parity"
)

func TestMissingFeature(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-22")
	h := Hierarchies{Unified: t.TempDir()}
	if got := h.MissingFeature(); got != "cpu.stat of the root" {
		t.Errorf("an old kernel lacks %q", got)
	}
	if err := os.WriteFile(filepath.Join(h.Unified, "cpu.stat"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := h.MissingFeature(); got != "" {
		t.Errorf("a newer one lacks %q", got)
	}
	if got := (Hierarchies{V1: map[string]string{"cpu": t.TempDir()}}).MissingFeature(); got != "" {
		t.Errorf("cgroup v1 lacks %q", got)
	}
}
