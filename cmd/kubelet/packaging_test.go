package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/need"
)

// TestUnitFiles verifies the packaged units with systemd-analyze: systemd ignores unknown settings,
// and reports them only in the journal.
func TestUnitFiles(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		need.Skip(t, "this machine has no systemd-analyze")
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../../packaging/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		// The programs may not be installed on the machine of the test.
		return strings.NewReplacer("/usr/bin/kubelet", "/bin/true", "/opt/keelson/bin/kubelet",
			"/bin/true").Replace(string(text))
	}
	dir := t.TempDir()
	unit := write(t, filepath.Join(dir, "kubelet.service"), read("kubelet.service"))
	if err := os.Mkdir(unit+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dropIn := range []bool{false, true} {
		if dropIn {
			write(t, filepath.Join(unit+".d", "20-keelson.conf"), read("20-keelson.conf"))
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", unit).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, dir) {
				t.Errorf("with the drop-in %v: %s", dropIn, line)
			}
		}
		if err != nil {
			t.Errorf("with the drop-in %v: %v: %s", dropIn, err, out)
		}
	}
}
