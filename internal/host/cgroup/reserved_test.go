package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// The limits are set on an existing cgroup. With the systemd driver those of a slice are set
// through systemd, which would otherwise restore its own values. All others are written to the
// files of the cgroup.
func TestLimitReserved(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-17")
	v := ReservedValues(list("cpu", "500m", "memory", "1Gi", "pid", "100"), false)
	if want := (Values{CPUShares: 512, Memory: 1 << 30, PIDs: 100}); fmt.Sprint(v) != fmt.Sprint(want) {
		t.Fatalf("values %+v, want %+v", v, want)
	}
	for _, tc := range []struct {
		name, path string
		driver     Driver
		unit       string // whose properties are set through systemd
		file       string // that is written
	}{
		{"files", "/system", Cgroupfs, "", "system/memory.max"},
		{"a slice, and files", "/system.slice", Cgroupfs, "", "system.slice/memory.max"},
		{"a slice of systemd's", "/system.slice", Systemd, "system.slice", ""},
		{"a slice below a slice", "/kube.slice/kube-agents.slice", Systemd, "kube-agents.slice", ""},
		{"a service", "/system.slice/agent.service", Systemd, "", "system.slice/agent.service/memory.max"},
		{"a slice below a plain directory", "/x/kube-agents.slice", Systemd, "", "x/kube-agents.slice/memory.max"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := Hierarchies{Unified: t.TempDir()}
			tree, err := New(Config{Driver: tc.driver, Hierarchies: h})
			if err != nil {
				t.Fatal(err)
			}
			units := &fakeUnits{h: h, running: map[string]Values{}}
			if tc.driver == Systemd {
				tree.units = units
			}
			if err := tree.LimitReserved(tc.path, v); err == nil || !strings.Contains(err.Error(), "does not exist") {
				t.Errorf("before it is made: %v", err)
			}
			dir := filepath.Join(h.Unified, tc.path)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu memory pids\n"),
				0o644); err != nil {
				t.Fatal(err)
			}
			if err := tree.LimitReserved(tc.path, v); err != nil {
				t.Fatal(err)
			}
			if got, ok := units.running[tc.unit]; ok != (tc.unit != "") || ok && fmt.Sprint(got) != fmt.Sprint(v) {
				t.Errorf("systemd has %+v", units.running)
			}
			text, err := os.ReadFile(filepath.Join(dir, "memory.max"))
			if (err == nil) != (tc.file != "") || err == nil && string(text) != "1073741824" {
				t.Errorf("memory.max is %q, %v", text, err)
			}
		})
	}
}
