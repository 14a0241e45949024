package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const procSys = "/proc/sys"

// kernelSettings are the settings of the whole machine that programs of a rig change. The bridge plugin changes the
// first, kubelets the others.
var kernelSettings = []string{
	"net/ipv4/ip_forward",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// readKernel reads the settings that this kernel has.
func readKernel(sys string) (map[string]string, error) {
	have := map[string]string{}
	for _, name := range kernelSettings {
		text, err := os.ReadFile(filepath.Join(sys, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read setting of the kernel: %w", err)
		}
		have[name] = strings.TrimSpace(string(text))
	}
	return have, nil
}

// restoreKernel sets the settings to their former values.
func restoreKernel(sys string, was map[string]string) error {
	now, err := readKernel(sys)
	if err != nil {
		return err
	}
	var errs []error
	for name, value := range was {
		if now[name] == value {
			continue // not written: on a machine that allows no writes, nothing has changed
		}
		if err := os.WriteFile(filepath.Join(sys, name), []byte(value), 0); err != nil {
			errs = append(errs, fmt.Errorf("restore setting of the kernel: %w", err))
		}
	}
	return errors.Join(errs...)
}
