package preflight

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/internal/config"
	"keelson/internal/host/setup"
	"keelson/test/kit/parity"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// configured loads a configuration of a standalone node that is valid on every machine, with text
// added to the file.
func configured(t *testing.T, text string, flags ...string) *config.Config {
	t.Helper()
	file := t.TempDir() + "/k.yaml"
	if err := os.WriteFile(file, []byte(head+"authentication: {webhook: {enabled: false}, anonymous: {enabled: "+
		"true}}\nauthorization: {mode: AlwaysAllow}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(append([]string{"--hostname-override=n1", "--config=" + file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCheck(t *testing.T) {
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
		{name: "no swap, cgroup v2"},
		{name: "swap, by default", host: swapping, field: "failSwapOn"},
		{name: "swap, failSwapOn is false", text: "failSwapOn: false", host: swapping},
		{name: "cgroup v1, by default", host: old, field: "failCgroupV1"},
		{
			name:  "cgroup v1 without cgroups for pods",
			text:  "cgroupsPerQOS: false\nenforceNodeAllocatable: []",
			host:  old,
			field: "failCgroupV1",
		},
		{name: "cgroup v1, failCgroupV1 is false", text: "failCgroupV1: false", host: old},
		{
			name:  "limited swap on cgroup v1",
			text:  "failCgroupV1: false\nmemorySwap: {swapBehavior: LimitedSwap}",
			host:  old,
			field: "memorySwap.swapBehavior",
		},
		{name: "limited swap on cgroup v2", text: "memorySwap: {swapBehavior: LimitedSwap}"},
		{
			name:  "whole containers killed on cgroup v1",
			text:  "failCgroupV1: false\nsingleProcessOOMKill: false",
			host:  old,
			field: "singleProcessOOMKill",
		},
		{name: "single processes killed on cgroup v1", text: "failCgroupV1: false\nsingleProcessOOMKill: true", host: old},
		{name: "whole containers killed on cgroup v2", text: "singleProcessOOMKill: false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ps := Check(configured(t, tc.text), tc.host)
			if tc.field == "" && len(ps) == 0 {
				return
			}
			if len(ps) != 1 || ps[0].Field != tc.field {
				t.Errorf("problems %v, want one about %q", ps, tc.field)
			}
		})
	}
	table := "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2                               " +
		"partition\t976892\t\t0\t\t-2\n/swap file\n"
	if got := strings.Join(swapsIn(table), " "); got != "/dev/sda2 /swap" {
		t.Errorf("swaps to %s", got)
	}
	if got := swapsIn("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"); len(got) != 0 {
		t.Errorf("an empty table holds %v", got)
	}
}

// TestCgroupV1OfThisHost: a host has cgroup v1 unless /sys/fs/cgroup itself is cgroup v2. A host with both (hybrid
// mode) counts as v1.
func TestCgroupV1OfThisHost(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-105")
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		t.Fatal(err)
	}
	if got, want := ThisHost().CgroupV1, st.Type != unix.CGROUP2_SUPER_MAGIC; got != want {
		t.Errorf("cgroup v1: %v, want %v with file system %#x", got, want, st.Type)
	}
}

// kernelWith writes sysctls with these values below proc/sys.
func kernelWith(t *testing.T, proc string, values map[string]string) {
	t.Helper()
	for file, value := range values {
		path := filepath.Join(proc, "sys", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKernelParameters(t *testing.T) {
	parity.Proves(t, "CFG-75", "RES-19")
	const off = "protectKernelDefaults: false\n"
	wanted := map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
	for text, tuned := range map[string]bool{"": true, off: true, "protectKernelDefaults: true\n": false} {
		proc := t.TempDir()
		plain := map[string]string{}
		for file := range wanted {
			plain[file] = "7"
		}
		kernelWith(t, proc, plain)
		if err := os.MkdirAll(proc+"/self", 0o755); err != nil {
			t.Fatal(err)
		}
		cfg := configured(t, text+"maxOpenFiles: 0\n")
		setup.NewProcess(setup.ProcessConfig{
			Proc:                  proc,
			ProtectKernelDefaults: cfg.Kubelet.ProtectKernelDefaults,
			Place:                 func() error { return nil },
			Log:                   slog.New(slog.DiscardHandler),
		}).Apply()
		for file, value := range wanted {
			got, err := os.ReadFile(filepath.Join(proc, "sys", file))
			if err != nil {
				t.Fatal(err)
			}
			if is := strings.TrimSpace(string(got)); is != map[bool]string{true: value, false: "7"}[tuned] {
				t.Errorf("%q: %s is %s", text, file, is)
			}
		}
		if left := setup.Untuned(proc + "/sys"); tuned && len(left) > 0 || !tuned && len(left) != len(wanted) {
			t.Errorf("%q: differs: %v", text, left)
		}
	}
	// With protectKernelDefaults the sysctls must have the required values already. One problem lists all differences.
	host := Host{Untuned: []string{"vm.overcommit_memory is 0 and not 1", "kernel.panic is 0 and not 10"}}
	ps := Check(configured(t, "protectKernelDefaults: true\n"), host)
	if len(ps) != 1 || ps[0].Field != "protectKernelDefaults" || !strings.Contains(ps[0].Why, host.Untuned[0]) ||
		!strings.Contains(ps[0].Why, host.Untuned[1]) {
		t.Errorf("problems %v", ps)
	}
	if ps := Check(configured(t, off), host); len(ps) != 0 {
		t.Errorf("where they will be set: %v", ps)
	}
	if ps := Check(configured(t, "protectKernelDefaults: true\n"), Host{}); len(ps) != 0 {
		t.Errorf("where they are right: %v", ps)
	}
}
