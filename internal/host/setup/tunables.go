package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tunables are the sysctls that pods rely on.
var tunables = []struct{ file, value string }{
	{"vm/overcommit_memory", "1"},             // memory is overcommitted: cgroups enforce the limits
	{"vm/panic_on_oom", "0"},                  // an OOM kills a container, not the machine
	{"kernel/panic", "10"},                    // a node reboots after a panic
	{"kernel/panic_on_oops", "1"},             // and panics when the kernel is broken
	{"kernel/keys/root_maxkeys", "1000000"},   // the runtime holds a key for each container
	{"kernel/keys/root_maxbytes", "25000000"}, // of root_maxkeys, 25 bytes each
}

// Untuned describes each sysctl below a directory like /proc/sys whose value differs. A sysctl that this kernel does
// not have is left out.
func Untuned(sys string) (out []string) {
	for _, t := range tunables {
		name := strings.ReplaceAll(t.file, "/", ".")
		text, err := os.ReadFile(filepath.Join(sys, t.file))
		switch is := strings.TrimSpace(string(text)); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			out = append(out, fmt.Sprintf("%s cannot be read: %v", name, err))
		case is != t.value:
			out = append(out, fmt.Sprintf("%s is %s and not %s", name, is, t.value))
		}
	}
	return out
}

// tune sets the sysctls to the values that pods rely on.
func tune(sys string) error {
	var failed []error
	for _, t := range tunables {
		path := filepath.Join(sys, t.file)
		text, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(text)) != t.value {
			err = os.WriteFile(path, []byte(t.value), 0)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = append(failed, fmt.Errorf("set %s to %s: %w", strings.ReplaceAll(t.file, "/", "."), t.value, err))
		}
	}
	return errors.Join(failed...)
}
