package uml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// modules are the kernel modules that the networks of pods need.
var modules = []string{
	"veth", "bridge", "br_netfilter", "iptable_nat", "iptable_filter",
	"xt_comment", "xt_MASQUERADE", "xt_conntrack", "xt_mark", "xt_addrtype", "xt_tcpudp", "xt_multiport", "xt_nat",
}

// kernel loads modules from a folder.
type kernel struct{ folder string }

// load loads a module after those that it depends on. modules.dep lists these: "path: path...", the last one is loaded
// first. A module that is loaded already or built into the kernel is not an error.
func (k kernel) load(name string) error {
	deps, err := os.ReadFile(filepath.Join(k.folder, "modules.dep"))
	if err != nil {
		return fmt.Errorf("load module %s: %w", name, err)
	}
	for _, file := range order(string(deps), name) {
		if err := k.insert(file); err != nil {
			return fmt.Errorf("load module %s: %s: %w", name, file, err)
		}
	}
	return nil
}

// order lists the files to load for a module.
func order(deps, name string) []string {
	for line := range strings.Lines(deps) {
		file, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.TrimSuffix(filepath.Base(file), ".ko") != name {
			continue
		}
		files := []string{file}
		for _, n := range strings.Fields(needs) {
			files = append([]string{n}, files...)
		}
		return files
	}
	return nil
}

func (k kernel) insert(file string) error {
	f, err := os.Open(filepath.Join(k.folder, file))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}
