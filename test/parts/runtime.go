package parts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Runtime has the paths of the programs of a container runtime and their source.
type Runtime struct {
	Source     string // "built", "debian" or "path"
	Version    string // containerd's, without its v
	Containerd string
	Ctr        string
	Runc       string
	CNI        string   // folder of the network plugins
	Path       []string // folders that the runtime needs in its PATH
}

// BuiltRuntime returns the newest runtime, built from the pinned modules.
func (b *Builder) BuiltRuntime(ctx context.Context) (Runtime, error) {
	var dirs []string
	for _, p := range []string{"containerd", "runc", "cni"} {
		dir, err := b.Dir(ctx, p)
		if err != nil {
			return Runtime{}, err
		}
		dirs = append(dirs, dir)
	}
	r := Runtime{
		Source: "built", CNI: dirs[2], Path: dirs[:2],
		Containerd: filepath.Join(dirs[0], "containerd"), Ctr: filepath.Join(dirs[0], "ctr"),
		Runc: filepath.Join(dirs[1], "runc"),
	}
	return b.complete(ctx, r)
}

// debianRuntime lists the packages of Debian's runtime. The network plugins need iptables and its libraries for NAT.
var debianRuntime = []string{
	"containerd", "runc", "containernetworking-plugins",
	"iptables", "libxtables12", "libip4tc2", "libip6tc2", "libnftnl11", "libmnl0", "libnetfilter-conntrack3",
	"libnfnetlink0",
}

// DebianRuntime returns the runtime of the running Debian release, unpacked into the cache and not installed.
func (b *Builder) DebianRuntime(ctx context.Context) (Runtime, error) {
	tree, err := b.Unpack(ctx, "runtime", false, debianRuntime...)
	if err != nil {
		return Runtime{}, err
	}
	bin := filepath.Join(tree, "usr", "bin")
	r := Runtime{
		Source: "debian", CNI: filepath.Join(tree, "usr", "lib", "cni"),
		Path:       []string{bin, filepath.Join(tree, "usr", "sbin")},
		Containerd: filepath.Join(bin, "containerd"), Ctr: filepath.Join(bin, "ctr"),
		Runc: filepath.Join(tree, "usr", "sbin", "runc"),
	}
	return b.complete(ctx, r)
}

// PathRuntime returns the runtime in PATH, or an error that names the missing program. Plugins are searched for in
// PATH, in /opt/cni/bin and in Debian's folder for them.
func (b *Builder) PathRuntime(ctx context.Context) (Runtime, error) {
	r := Runtime{Source: "path"}
	for prog, to := range map[string]*string{"containerd": &r.Containerd, "ctr": &r.Ctr, "runc": &r.Runc} {
		p, err := exec.LookPath(prog)
		if err != nil {
			return r, fmt.Errorf("find runtime on PATH: %w", err)
		}
		*to = p
	}
	if _, err := exec.LookPath("containerd-shim-runc-v2"); err != nil {
		return r, fmt.Errorf("find runtime on PATH: %w", err)
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/opt/cni/bin", "/usr/lib/cni") {
		if _, err := os.Stat(filepath.Join(dir, "host-local")); err == nil {
			r.CNI = dir
			return b.complete(ctx, r)
		}
	}
	return r, errors.New("find network plugins: host-local is neither on PATH nor in /opt/cni/bin or /usr/lib/cni")
}

// AnyRuntime returns the runtime in PATH, or Debian's if PATH does not have all of its programs. Nothing is compiled.
func (b *Builder) AnyRuntime(ctx context.Context) (Runtime, error) {
	if r, err := b.PathRuntime(ctx); err == nil {
		return r, nil
	}
	return b.DebianRuntime(ctx)
}

// complete reads the version of containerd and ensures that iptables is available.
func (b *Builder) complete(ctx context.Context, r Runtime) (Runtime, error) {
	out, err := exec.CommandContext(ctx, r.Containerd, "--version").Output()
	if err != nil {
		return r, fmt.Errorf("ask containerd for its version: %w", err)
	}
	// containerd github.com/containerd/containerd/v2 v2.4.2 <revision>; Debian's has no v.
	f := strings.Fields(string(out))
	if len(f) < 3 {
		return r, fmt.Errorf("ask containerd for its version: it says %q", out)
	}
	r.Version = strings.TrimPrefix(f[2], "v")
	return r, b.iptables(ctx, &r)
}

// iptables ensures that the plugins find iptables. If the system has none, Debian's is used from the cache. Small
// scripts set the paths of its libraries.
func (b *Builder) iptables(ctx context.Context, r *Runtime) error {
	if _, err := exec.LookPath("iptables"); err == nil {
		return nil
	}
	if _, err := os.Stat("/usr/sbin/iptables"); err == nil {
		r.Path = append(r.Path, "/usr/sbin")
		return nil
	}
	tree, err := b.Unpack(ctx, "runtime", false, debianRuntime...)
	if err != nil {
		return err
	}
	libs, err := filepath.Glob(filepath.Join(tree, "usr", "lib", "*-linux-gnu*"))
	if err != nil || len(libs) == 0 {
		return fmt.Errorf("find libraries of iptables in %s: none (%v)", tree, err)
	}
	dir := filepath.Join(filepath.Dir(tree), "iptables-"+filepath.Base(tree))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make iptables scripts: %w", err)
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save",
		"ip6tables-restore"} {
		script := fmt.Sprintf(
			"#!/bin/sh\nLD_LIBRARY_PATH=%s XTABLES_LIBDIR=%s/xtables exec %s/usr/sbin/xtables-nft-multi %s \"$@\"\n",
			libs[0], libs[0], tree, name)
		tmp := filepath.Join(dir, name+".part")
		if err := os.WriteFile(tmp, []byte(script), 0o755); err != nil {
			return fmt.Errorf("make iptables scripts: %w", err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("make iptables scripts: %w", err)
		}
	}
	// This folder must come first: Debian's own links in usr/sbin point to /etc/alternatives.
	r.Path = append([]string{dir}, r.Path...)
	return nil
}
