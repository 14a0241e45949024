package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// kernelWith is a /proc/sys in which the settings have these values.
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

func TestTheKernelIsTuned(t *testing.T) {
	parity.Proves(t, "CFG-75", "RES-19")
	const off = "protectKernelDefaults: false\n"
	wanted := map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
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
		settleProcess(&cfg.Kubelet, proc, slog.New(slog.DiscardHandler))
		for file, value := range wanted {
			got, err := os.ReadFile(filepath.Join(proc, "sys", file))
			if err != nil {
				t.Fatal(err)
			}
			if is := strings.TrimSpace(string(got)); is != map[bool]string{true: value, false: "7"}[tuned] {
				t.Errorf("%q: %s is %s", text, file, is)
			}
		}
		if left := untuned(proc + "/sys"); tuned && len(left) > 0 || !tuned && len(left) != len(wanted) {
			t.Errorf("%q: differs: %v", text, left)
		}
	}
	// What may not be touched must be right already: every difference in one message.
	host := Host{Untuned: []string{"vm.overcommit_memory is 0 and not 1", "kernel.panic is 0 and not 10"}}
	ps := Preflight(configured(t, "protectKernelDefaults: true\n"), host)
	if len(ps) != 1 || ps[0].Field != "protectKernelDefaults" || !strings.Contains(ps[0].Why, host.Untuned[0]) || !strings.Contains(ps[0].Why, host.Untuned[1]) {
		t.Errorf("problems %v", ps)
	}
	if ps := Preflight(configured(t, off), host); len(ps) != 0 {
		t.Errorf("where they will be set: %v", ps)
	}
	if ps := Preflight(configured(t, "protectKernelDefaults: true\n"), Host{}); len(ps) != 0 {
		t.Errorf("where they are right: %v", ps)
	}
}

// A kernel without a setting, or one that cannot be set, keeps no agent from running.
func TestAKernelThatCannotBeTuned(t *testing.T) {
	proc := t.TempDir()
	kernelWith(t, proc, map[string]string{"kernel/panic": "10"})
	if err := os.MkdirAll(proc+"/sys/vm/panic_on_oom", 0o755); err != nil { // reads and writes fail
		t.Fatal(err)
	}
	if err := tune(proc + "/sys"); err == nil || !strings.Contains(err.Error(), "set vm.panic_on_oom to 0: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("said: %v", err)
	}
	if got := untuned(proc + "/sys"); len(got) != 1 || !strings.HasPrefix(got[0], "vm.panic_on_oom cannot be read: ") {
		t.Errorf("differs: %v", got)
	}
}
