package cgroup

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func TestNames(t *testing.T) {
	parity.Proves(t, "RES-01", "RES-02")
	parity.ProvesPart(t, 2, "RES-04")
	const uid = "0a1b-2c"
	for _, tc := range []struct {
		root               string
		class              v1.PodQOSClass
		cgroupfs, systemd  string
		slice, parentSlice string
	}{
		{"/", v1.PodQOSGuaranteed, "/kubepods/pod0a1b-2c", "/kubepods.slice/kubepods-pod0a1b_2c.slice", "kubepods-pod0a1b_2c.slice", "kubepods.slice"},
		{"", v1.PodQOSBurstable, "/kubepods/burstable/pod0a1b-2c", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice", "kubepods-burstable-pod0a1b_2c.slice", "kubepods-burstable.slice"},
		{"/", v1.PodQOSBestEffort, "/kubepods/besteffort/pod0a1b-2c", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b_2c.slice", "kubepods-besteffort-pod0a1b_2c.slice", "kubepods-besteffort.slice"},
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
	parity.Proves(t, "RES-03")
	n := podsName("/a-b/c/")
	if got := n.path(Cgroupfs); got != "/a-b/c/kubepods" {
		t.Errorf("cgroupfs path = %s", got)
	}
	if got := n.path(Systemd); got != "/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice" {
		t.Errorf("systemd path = %s", got)
	}
	tree, err := New(Config{Driver: Cgroupfs, Root: "/absent-for-sure", Hierarchies: Hierarchies{Unified: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.EnsureRoot(Values{}); err == nil {
		t.Error("a root that does not exist was taken")
	}
}

func TestNamesOfNoPod(t *testing.T) {
	for base, d := range map[string]Driver{
		"burstable": Cgroupfs, "pod": Cgroupfs, "kubepods-burstable.slice": Systemd, "kubepods-pod1.scope": Systemd, "system.slice": Systemd, "": Systemd,
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
