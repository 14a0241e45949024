package app

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/internal/config"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/parity"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// configured reads a configuration file of a standalone node that suits every
// machine, with text added to it.
func configured(t *testing.T, text string, flags ...string) *config.Config {
	t.Helper()
	file := t.TempDir() + "/k.yaml"
	if err := os.WriteFile(file, []byte(head+"authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(append([]string{"--hostname-override=n1", "--config=" + file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheMachineMustSuit(t *testing.T) {
	parity.Proves(t, "CFG-79")
	parity.ProvesPart(t, 2, "CFG-105")
	parity.ProvesPart(t, 2, "CFG-54")
	parity.ProvesPart(t, 3, "CFG-80")
	parity.ProvesPart(t, 2, "RES-22")
	swapping, old := Host{Swap: []string{"/dev/sda2"}}, Host{CgroupV1: true}
	for _, tc := range []struct {
		name, text string
		host       Host
		field      string // that is wrong; "" if none
	}{
		{name: "a plain machine"},
		{name: "swap, by default", host: swapping, field: "failSwapOn"},
		{name: "swap, and it is meant", text: "failSwapOn: false", host: swapping},
		{name: "cgroup v1, by default", host: old, field: "failCgroupV1"},
		{name: "cgroup v1 without cgroups for pods", text: "cgroupsPerQOS: false\nenforceNodeAllocatable: []", host: old, field: "failCgroupV1"},
		{name: "cgroup v1, and it is meant", text: "failCgroupV1: false", host: old},
		{name: "limited swap on cgroup v1", text: "failCgroupV1: false\nmemorySwap: {swapBehavior: LimitedSwap}", host: old, field: "memorySwap.swapBehavior"},
		{name: "limited swap on cgroup v2", text: "memorySwap: {swapBehavior: LimitedSwap}"},
		{name: "whole containers killed on cgroup v1", text: "failCgroupV1: false\nsingleProcessOOMKill: false", host: old, field: "singleProcessOOMKill"},
		{name: "single processes killed on cgroup v1", text: "failCgroupV1: false\nsingleProcessOOMKill: true", host: old},
		{name: "whole containers killed on cgroup v2", text: "singleProcessOOMKill: false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ps := Preflight(configured(t, tc.text), tc.host)
			if tc.field == "" && len(ps) == 0 {
				return
			}
			if len(ps) != 1 || ps[0].Field != tc.field {
				t.Errorf("problems %v, want one about %q", ps, tc.field)
			}
		})
	}
	table := "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2                               partition\t976892\t\t0\t\t-2\n/swap file\n"
	if got := strings.Join(swapsIn(table), " "); got != "/dev/sda2 /swap" {
		t.Errorf("swaps to %s", got)
	}
	if got := swapsIn("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"); len(got) != 0 {
		t.Errorf("an empty table holds %v", got)
	}
}

// TestThisHostHasCgroupV1, unless what is mounted for cgroups is version 2 itself: with both it has version 1.
func TestThisHostHasCgroupV1(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-105")
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		t.Fatal(err)
	}
	if got, want := ThisHost().CgroupV1, st.Type != unix.CGROUP2_SUPER_MAGIC; got != want {
		t.Errorf("cgroup v1: %v, want %v with file system %#x", got, want, st.Type)
	}
}

func TestCgroupDriver(t *testing.T) {
	parity.Proves(t, "CFG-52")
	for _, tc := range []struct{ text, runtime, want string }{
		{want: "cgroupfs"},
		{text: "cgroupDriver: systemd", want: "systemd"},
		{text: "cgroupDriver: systemd", runtime: "cgroupfs", want: "cgroupfs"},
		{runtime: "systemd", want: "systemd"},
	} {
		k := configured(t, tc.text).Kubelet
		if got := cgroupDriver(k.CgroupDriver, cri.Identity{CgroupDriver: tc.runtime}); string(got) != tc.want {
			t.Errorf("%q over a runtime that says %q: %s, want %s", tc.text, tc.runtime, got, tc.want)
		}
	}
}

func TestCgroupRoot(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-51")
	for text, want := range map[string]string{
		"":                 "/",
		"cgroupRoot: ''":   "/",
		"cgroupRoot: /a/b": "/a/b",
		"cgroupRoot: /":    "/",
	} {
		if got := cgroupRoot(&configured(t, text).Kubelet); got != want {
			t.Errorf("%q: pods are below %q, want %q", text, got, want)
		}
	}
}

func TestFirstNodeIP(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-27")
	for flag, want := range map[string]string{
		"":                   "",
		"192.0.2.1":          "192.0.2.1",
		"fd00::1,192.0.2.1":  "fd00::1",
		"::":                 "::",
		"nonsense":           "",
		"nonsense,192.0.2.1": "192.0.2.1",
	} {
		a := &agent{cfg: configured(t, "", "--node-ip="+flag)}
		if got := a.nodeIP(); got != want {
			t.Errorf("--node-ip=%s: %q, want %q", flag, got, want)
		}
	}
}

func TestReservedCPUsOverrideAmounts(t *testing.T) {
	parity.Proves(t, "CFG-84")
	for _, field := range []string{"systemReservedCgroup", "kubeReservedCgroup"} {
		_, err := config.Load([]string{"--hostname-override=n1", "--config=" + reservedWith(t, field)})
		if err == nil || !strings.Contains(err.Error(), "reservedSystemCPUs: \"0\" cannot be combined with "+field) {
			t.Errorf("with %s: %v", field, err)
		}
	}
	a := &agent{cfg: configured(t, "reservedSystemCPUs: 0-1,4\nkubeReserved: {cpu: 100m, memory: 1Gi}\nsystemReserved: {cpu: '1', memory: 1Gi}")}
	if err := a.reserve(); err != nil {
		t.Fatal(err)
	}
	cpu, memory := a.reserved["cpu"], a.reserved["memory"]
	if cpu.String() != "3" || memory.String() != "2Gi" {
		t.Errorf("kept: %s CPUs, %s memory", cpu.String(), memory.String())
	}
}

func reservedWith(t *testing.T, field string) string {
	t.Helper()
	file := t.TempDir() + "/k.yaml"
	if err := os.WriteFile(file, []byte(head+"reservedSystemCPUs: '0'\n"+field+": /x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestProcessStanding(t *testing.T) {
	parity.Proves(t, "CFG-67")
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	n := before.Max - 1
	if err := openFiles(n); err != nil {
		t.Fatal(err)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != n || now.Max != n {
		t.Errorf("limit %+v, %v, want %d", now, err, n)
	}
	before = now // a limit that was lowered comes back only for the privileged
	if err := openFiles(0); err != nil {
		t.Error(err)
	}
	if k := configured(t, "").Kubelet; k.MaxOpenFiles != 1000000 {
		t.Errorf("by default %d", k.MaxOpenFiles)
	}
}
