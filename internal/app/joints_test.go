package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"keelson/internal/host/cgroup"
	"keelson/internal/resources/userns"
	"keelson/test/kit/parity"
)

// While a pod's cgroup cannot be removed, a process may run in it with the pod's user IDs: no other pod gets them.
func TestUserNamespaceIsReleasedAfterCgroup(t *testing.T) {
	parity.Differs(t, "LIFE-09", "0005")
	pods, hierarchy := t.TempDir(), t.TempDir()
	tree, err := cgroup.New(cgroup.Config{
		Driver:      cgroup.Cgroupfs,
		Root:        "/",
		Hierarchies: cgroup.Hierarchies{Unified: hierarchy},
	})
	if err != nil {
		t.Fatal(err)
	}
	users, err := userns.New(userns.Config{
		PodsDir: pods,
		IDs:     userns.Range{First: userns.DefaultIDs, Count: userns.DefaultIDs},
		PerPod:  userns.DefaultIDs,
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(pods, uid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stuck := filepath.Join(hierarchy, "kubepods", "podone", "stuck")
	if err := os.MkdirAll(filepath.Dir(stuck), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stuck, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := podCgroups{cgroup.NewPods(cgroup.PodsConfig{Tree: tree}), users}
	if _, err := users.Allocate("one"); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // it is tried once
	if err := c.RemovePod(gone, "one"); err == nil {
		t.Error("the cgroup was removed, though there is something in it")
	}
	if r, err := users.Allocate("two"); err == nil {
		t.Errorf("another pod is given %+v, the users of one whose cgroup is there", r)
	}
	if err := os.Remove(stuck); err != nil {
		t.Fatal(err)
	}
	if err := c.RemovePod(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := users.Allocate("two"); err != nil {
		t.Errorf("the users of a pod that is gone are taken: %v", err)
	}
}
