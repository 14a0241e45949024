package logind

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"keelson/test/parts"
)

// policy lets any client own any name and send anything.
const policy = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// Bus is a dbus-daemon.
type Bus struct {
	Address string

	program, config string
	env             []string
	cmd             *exec.Cmd
}

// StartBus starts a bus, which ends with the test, and returns when it takes
// connections.
func StartBus(t testing.TB) *Bus {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus-") // the names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b := &Bus{Address: "unix:path=" + filepath.Join(dir, "bus"), config: filepath.Join(dir, "bus.conf")}
	b.find(t)
	if err := os.WriteFile(b.config, fmt.Appendf(nil, policy, b.Address), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Start(t)
	t.Cleanup(b.Stop)
	return b
}

// find looks for dbus-daemon on this machine, and fetches Debian's otherwise.
func (b *Bus) find(t testing.TB) {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	if err == nil {
		b.program = path
		return
	}
	builder, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := builder.Unpack(t.Context(), "dbus", true, "dbus-daemon")
	if err != nil {
		t.Fatal(err)
	}
	libs, err := filepath.Glob(filepath.Join(tree, "usr", "lib", "*-linux-gnu*"))
	if err != nil || len(libs) == 0 {
		t.Fatalf("find libraries of dbus-daemon in %s: none (%v)", tree, err)
	}
	b.program, b.env = filepath.Join(tree,
		"usr", "bin", "dbus-daemon"), []string{"LD_LIBRARY_PATH=" + strings.Join(libs, ":")}
}

// Start starts the bus anew after Stop, at the same address.
func (b *Bus) Start(t testing.TB) {
	t.Helper()
	b.cmd = exec.Command(b.program, "--config-file="+b.config, "--nofork", "--nopidfile", "--print-address=1")
	b.cmd.Env = append(os.Environ(), b.env...)
	b.cmd.Stderr = t.Output()
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It says its address once it listens there.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Stop()
		t.Fatalf("start dbus-daemon: it says %q, %v", line, err)
	}
}

// Stop ends the bus; who speaks over it is cut off. A bus that is stopped stays so.
func (b *Bus) Stop() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill() // it has ended, or ends
	_ = b.cmd.Wait()         // killed: that is no failure
	b.cmd = nil
}
