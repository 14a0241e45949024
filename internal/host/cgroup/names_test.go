package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func TestNames(t *testing.T) {
	parity.Proves(t, "RES-01", "RES-02")
	parity.ProvesPart(t, 3, "RES-04")
	const uid = "0a1b-2c"
	for _, tc := range []struct {
		root               string
		class              v1.PodQOSClass
		cgroupfs, systemd  string
		slice, parentSlice string
	}{
		{"/", v1.PodQOSGuaranteed, "/kubepods/pod0a1b-2c", "/kubepods.slice/kubepods-pod0a1b_2c.slice",
			"kubepods-pod0a1b_2c.slice", "kubepods.slice"},
		{"", v1.PodQOSBurstable, "/kubepods/burstable/pod0a1b-2c",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
			"kubepods-burstable-pod0a1b_2c.slice", "kubepods-burstable.slice"},
		{"/", v1.PodQOSBestEffort, "/kubepods/besteffort/pod0a1b-2c",
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b_2c.slice",
			"kubepods-besteffort-pod0a1b_2c.slice", "kubepods-besteffort.slice"},
	} {
		n := podsName(tc.root).qosName(tc.class).child(podName(uid))
		if got := n.path(Cgroupfs); got != tc.cgroupfs {
			t.Errorf("cgroupfs path = %s, want %s", got, tc.cgroupfs)
		}
		if got := n.path(Systemd); got != tc.systemd {
			t.Errorf("systemd path = %s, want %s", got, tc.systemd)
		}
		if unit, parent := n.slice(); unit != tc.slice || parent != tc.parentSlice {
			t.Errorf("slice = %s in %s, want %s in %s", unit, parent, tc.slice, tc.parentSlice)
		}
		for d, base := range map[Driver]string{Cgroupfs: "pod0a1b-2c", Systemd: tc.slice} {
			if got, ok := uidOf(base, d); !ok || got != uid {
				t.Errorf("uidOf(%s, %s) = %s, %v", base, d, got, ok)
			}
		}
	}
	if unit, parent := podsName("/").slice(); unit != "kubepods.slice" || parent != "-.slice" {
		t.Errorf("root slice = %s in %s", unit, parent)
	}
}

func TestRootPrefix(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-03")
	n := podsName("/a-b/c/")
	if got := n.path(Cgroupfs); got != "/a-b/c/kubepods" {
		t.Errorf("cgroupfs path = %s", got)
	}
	if got := n.path(Systemd); got != "/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice" {
		t.Errorf("systemd path = %s", got)
	}
}

// TestCheckRoot: the cgroup root must exist and have the controllers that limit pods. In v1
// hierarchies that do not limit pods it is created if it is missing.
func TestCheckRoot(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-03")
	made := func(dirs ...string) string {
		at := t.TempDir()
		for _, d := range dirs {
			if err := os.MkdirAll(filepath.Join(at, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return at
	}
	unified := func(root, below string) Hierarchies {
		at := made("a/b")
		for file, text := range map[string]string{"cgroup.controllers": root, "a/b/cgroup.controllers": below} {
			if err := os.WriteFile(filepath.Join(at, file), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return Hierarchies{Unified: at}
	}
	cpu, memory, network := made("a/b", "a_b.slice"), made("a"), made()
	for _, tc := range []struct {
		name   string
		driver Driver
		root   string
		in     Hierarchies
		want   string // error; "" if the root can be used
	}{
		{"the root of all", Cgroupfs, "/", Hierarchies{V1: map[string]string{"cpu": cpu, "memory": memory}}, ""},
		{"in all hierarchies that limit pods", Cgroupfs, "/a", Hierarchies{V1: map[string]string{
			"cpu":    cpu,
			"memory": memory,
		}}, ""},
		{"not in one of them", Cgroupfs, "/a/b", Hierarchies{
			V1: map[string]string{"cpu": cpu, "cpuacct": cpu, "memory": memory},
		},
			"use cgroup root /a/b: it lacks " + memory + "/a/b"},
		{"not in that of systemd", Cgroupfs, "/a", Hierarchies{V1: map[string]string{
			"cpu":          cpu,
			"name=systemd": network,
		}},
			"use cgroup root /a: it lacks " + network + "/a"},
		{"in none", Cgroupfs, "/c", Hierarchies{V1: map[string]string{"cpu": cpu, "memory": memory}},
			"use cgroup root /c: it lacks " + cpu + "/c, " + memory + "/c"},
		{"not in one that limits nothing", Cgroupfs, "/a/b", Hierarchies{V1: map[string]string{
			"cpu":     cpu,
			"net_cls": network,
		}}, ""},
		{"a slice", Systemd, "/a-b", Hierarchies{V1: map[string]string{"cpu": cpu}}, ""},
		{"no slice", Systemd, "/a", Hierarchies{V1: map[string]string{"cpu": cpu}},
			"use cgroup root /a.slice: it lacks " + cpu + "/a.slice"},
		{"v2 with all controllers of the machine", Cgroupfs, "/a/b", unified("cpu io memory", "cpu memory"), ""},
		{"v2 without some", Cgroupfs, "/a/b", unified("cpu cpuset hugetlb memory pids", "memory"),
			"use cgroup root /a/b: it lacks cpu, cpuset, hugetlb, pids"},
		{"v2 without the cgroup", Cgroupfs, "/c", unified("cpu", "cpu"), "no such file or directory"},
	} {
		tree, err := New(Config{Driver: tc.driver, Root: tc.root, Hierarchies: tc.in})
		if err != nil {
			t.Fatal(err)
		}
		got := tree.CheckRoot()
		if tc.want == "" && got != nil || tc.want != "" && (got == nil || !strings.HasSuffix(got.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, got, tc.want)
		}
		if tc.want != "" && tree.EnsureRoot(Values{}) == nil {
			t.Errorf("%s: it is used", tc.name)
		}
	}
	tree, err := New(Config{
		Driver:      Cgroupfs,
		Root:        "/a/b",
		Hierarchies: Hierarchies{V1: map[string]string{"cpu": cpu, "net_cls": network}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(network, "a/b/kubepods")); err != nil {
		t.Error(err)
	}
}

func TestUIDOfOtherNames(t *testing.T) {
	for base, d := range map[string]Driver{
		"burstable":                Cgroupfs,
		"pod":                      Cgroupfs,
		"kubepods-burstable.slice": Systemd,
		"kubepods-pod1.scope":      Systemd,
		"system.slice":             Systemd,
		"":                         Systemd,
	} {
		if uid, ok := uidOf(base, d); ok {
			t.Errorf("uidOf(%q, %s) = %s, want none", base, d, uid)
		}
	}
}

func TestNewRefusesAnUnknownDriver(t *testing.T) {
	if _, err := New(Config{Driver: "docker"}); err == nil {
		t.Error("driver docker was taken")
	}
}
