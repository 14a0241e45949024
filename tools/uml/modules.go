package uml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// modules are what pods' networks need of the kernel.
var modules = []string{
	"veth", "bridge", "br_netfilter", "iptable_nat", "iptable_filter",
	"xt_comment", "xt_MASQUERADE", "xt_conntrack", "xt_mark", "xt_addrtype", "xt_tcpudp", "xt_multiport", "xt_nat",
}

// kernel loads modules from a folder.
type kernel struct{ folder string }

// load loads a module after those that it needs. Which those are is written in
// modules.dep: "path: path...", the last to be loaded first. One that is there
// already is fine, and so is one that is no module but part of the kernel.
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
