package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// taken tells whether something else uses a number's bridge or addresses.
func taken(n number) bool {
	if _, err := net.InterfaceByName(n.bridge()); err == nil {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false // making the bridge will tell
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(n.pods()) {
			return true
		}
	}
	return false
}

// makeBridge makes the bridge before the first pod does, because its address
// is also the node's: no other machine reaches it, and unlike a loopback
// address a kubelet takes it for its own.
func (r *Rig) makeBridge() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	defer unix.Close(s)
	name := r.n.bridge()
	if err := bridgeCall(s, unix.SIOCBRADDBR, name); err != nil {
		return fmt.Errorf("make bridge %s: %w", name, err)
	}
	set := func(request uint, fill func(*unix.Ifreq) error) error {
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := fill(req); err != nil {
			return err
		}
		return unix.IoctlIfreq(s, request, req)
	}
	addr := r.n.gateway().As4()
	mask := net.CIDRMask(r.n.pods().Bits(), 32)
	err = errors.Join(
		set(unix.SIOCSIFADDR, func(q *unix.Ifreq) error { return q.SetInet4Addr(addr[:]) }),
		set(unix.SIOCSIFNETMASK, func(q *unix.Ifreq) error { return q.SetInet4Addr(mask) }),
		set(unix.SIOCSIFFLAGS, func(q *unix.Ifreq) error { q.SetUint16(unix.IFF_UP); return nil }),
	)
	if err != nil {
		return fmt.Errorf("set up bridge %s: %w", name, err)
	}
	return nil
}

// removeBridge takes the bridge down and away; that it is not there is fine.
func removeBridge(name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("remove bridge: %w", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("remove bridge: %w", err)
	}
	req.SetUint16(0)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("take bridge %s down: %w", name, err)
	}
	if err := bridgeCall(s, unix.SIOCBRDELBR, name); err != nil {
		return fmt.Errorf("remove bridge %s: %w", name, err)
	}
	return nil
}

// bridgeCall is an ioctl whose argument is the name alone.
func bridgeCall(socket int, request uintptr, name string) error {
	var arg [unix.IFNAMSIZ]byte
	copy(arg[:unix.IFNAMSIZ-1], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), request, uintptr(unsafe.Pointer(&arg))); e != 0 {
		return e
	}
	return nil
}

// conflist is the CNI configuration of the rig's network. No promiscuous mode:
// the bridge plugin refuses it together with hairpin.
func (n number) conflist(data string) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": %q,
  "plugins": [
    {
      "type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": %q,
        "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}
  ]
}
`, n.name(), n.bridge(), data, n.pods())
}

// portmapChains are made by the port mapper once and shared by all networks.
const portmapChains = "CNI-HOSTPORT-"

// noPortmapChains tells whether the port mapper has not been here yet.
func noPortmapChains(ctx context.Context, path []string) (bool, error) {
	rules, err := natRules(ctx, path)
	return !bytes.Contains(rules, []byte(portmapChains)), err
}

// removeRules removes the address translation of a network, and the port
// mapper's own chains if that is asked.
func removeRules(ctx context.Context, path []string, network string, shared bool) error {
	rules, err := natRules(ctx, path)
	if err != nil {
		return err
	}
	script := undo(string(rules), network, shared)
	if script == "" {
		return nil
	}
	cmd := iptables(ctx, path, "iptables-restore", "--noflush")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove address translation of %s: %w: %s", network, err, out)
	}
	return nil
}

func natRules(ctx context.Context, path []string) ([]byte, error) {
	out, err := iptables(ctx, path, "iptables-save", "-t", "nat").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil // then no program translates addresses
	}
	if err != nil {
		return nil, fmt.Errorf("read address translation: %w", err)
	}
	return out, nil
}

// iptables runs a program of that family from the folders that the runtime
// finds it in.
func iptables(ctx context.Context, path []string, name string, args ...string) *exec.Cmd {
	for _, dir := range append(path, "/usr/sbin", "/sbin") {
		if p := filepath.Join(dir, name); executable(p) {
			return exec.CommandContext(ctx, p, args...)
		}
	}
	return exec.CommandContext(ctx, name, args...)
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode()&0o111 != 0
}

var (
	ruleLine   = regexp.MustCompile(`^-A (\S+) `)
	chainLine  = regexp.MustCompile(`^:(\S+) `)
	jumpTarget = regexp.MustCompile(` -j (CNI-\S+)`)
)

// undo turns a saved nat table into the commands that remove a network's part
// of it. The plugins write the network's name into a comment of each rule that
// leads to a chain of a pod's own.
func undo(saved, network string, shared bool) string {
	var deletes []string
	gone := map[string]bool{} // chains to remove
	mark := fmt.Sprintf(`name: \"%s\"`, network)
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		if m := chainLine.FindStringSubmatch(line); m != nil && shared && strings.HasPrefix(m[1], portmapChains) {
			gone[m[1]] = true
		}
		if m := jumpTarget.FindStringSubmatch(line); m != nil && strings.Contains(line, mark) &&
			!strings.HasPrefix(m[1], portmapChains) {
			gone[m[1]] = true
		}
	}
	var order []string
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		if m := chainLine.FindStringSubmatch(line); m != nil && gone[m[1]] {
			order = append(order, m[1])
		}
		m := ruleLine.FindStringSubmatch(line)
		if m == nil || gone[m[1]] {
			continue // no rule, or it goes with its chain
		}
		if to := jumpTarget.FindStringSubmatch(line); to != nil && gone[to[1]] || strings.Contains(line, mark) {
			deletes = append(deletes, "-D"+line[2:])
		}
	}
	if len(order)+len(deletes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("*nat\n")
	for _, d := range deletes {
		b.WriteString(d + "\n")
	}
	for _, verb := range []string{"-F ", "-X "} { // all empty before the first goes: they lead to each other
		for _, c := range order {
			b.WriteString(verb + c + "\n")
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
