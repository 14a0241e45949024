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

// taken returns whether something else uses a number's bridge or addresses.
func taken(n number) bool {
	if _, err := net.InterfaceByName(n.bridge()); err == nil {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false // then making the bridge fails with an error
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(n.pods()) {
			return true
		}
	}
	return false
}

// makeBridge makes the bridge before the CNI plugin does for the first pod, because its address is also the node's. No
// other machine reaches this address, and a kubelet accepts it as its own, unlike a loopback address.
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

// removeBridge sets the bridge down and removes it. It is no error if the bridge does not exist.
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

// bridgeCall makes an ioctl whose only argument is the name.
func bridgeCall(socket int, request uintptr, name string) error {
	var arg [unix.IFNAMSIZ]byte
	copy(arg[:unix.IFNAMSIZ-1], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), request, uintptr(unsafe.Pointer(&arg))); e != 0 {
		return e
	}
	return nil
}

// conflist returns the CNI configuration of the rig's network. It has no promiscuous mode, because the bridge plugin
// rejects it together with hairpin mode.
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

// portmapChains is the prefix of the chains that the port mapper makes once for all networks.
const portmapChains = "CNI-HOSTPORT-"

// noPortmapChains returns whether the port mapper has not made its chains yet.
func noPortmapChains(ctx context.Context, path []string) (bool, error) {
	rules, err := natRules(ctx, path)
	return !bytes.Contains(rules, []byte(portmapChains)), err
}

// removeRules removes the NAT rules of a network. If shared is true, it also removes the port mapper's own chains.
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
		return nil, nil // without iptables there are no rules
	}
	if err != nil {
		return nil, fmt.Errorf("read address translation: %w", err)
	}
	return out, nil
}

// iptables returns the command of an iptables program, which is searched for in the same folders as by the runtime.
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

// undo returns the commands that remove a network's rules and chains from a saved nat table. The plugins write the
// network's name into a comment of each rule that jumps to the chain of a pod.
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
			continue // no rule, or it is removed with its chain
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
	for _, verb := range []string{"-F ", "-X "} { // flush all before the first is removed: they jump to each other
		for _, c := range order {
			b.WriteString(verb + c + "\n")
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
