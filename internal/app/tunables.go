package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tunables are the settings of the kernel that pods are promised.
var tunables = []struct{ file, value string }{
	{"vm/overcommit_memory", "1"},             // what is asked for is given: limits are the cgroups' to keep
	{"vm/panic_on_oom", "0"},                  // memory that is used up is one container's trouble
	{"kernel/panic", "10"},                    // a node that has panicked comes back
	{"kernel/panic_on_oops", "1"},             // and one that is broken does not go on
	{"kernel/keys/root_maxkeys", "1000000"},   // the runtime holds a key for each container
	{"kernel/keys/root_maxbytes", "25000000"}, // of root_maxkeys, 25 bytes each
}

// untuned says of each setting that is not as pods are promised what it is. One that
// this kernel does not have promises nothing.
func untuned(sys string) (out []string) {
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

// tune gives the settings the values that pods are promised.
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
