package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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

// A sysctl that the kernel does not have is not an error. One that cannot be set is, but the others are set.
func TestTuneErrors(t *testing.T) {
	proc := t.TempDir()
	kernelWith(t, proc, map[string]string{"kernel/panic": "10"})
	if err := os.MkdirAll(proc+"/sys/vm/panic_on_oom", 0o755); err != nil { // reads and writes fail
		t.Fatal(err)
	}
	if err := tune(proc + "/sys"); err == nil || !strings.Contains(err.Error(), "set vm.panic_on_oom to 0: ") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("logged: %v", err)
	}
	if got := Untuned(proc + "/sys"); len(got) != 1 || !strings.HasPrefix(got[0], "vm.panic_on_oom cannot be read: ") {
		t.Errorf("differs: %v", got)
	}
}
