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

// policy allows any client to own any name and to send any message.
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

// StartBus starts a bus, which is stopped at the end of the test, and returns when it accepts
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

// find looks for dbus-daemon on this machine. If there is none, it fetches Debian's.
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

// Start starts the bus again after Stop, at the same address.
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
	// It prints its address once it listens there.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Stop()
		t.Fatalf("start dbus-daemon: it says %q, %v", line, err)
	}
}

// Stop ends the bus and disconnects its clients. It does nothing for a bus that is stopped.
func (b *Bus) Stop() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill() // fails only if it has ended already
	_ = b.cmd.Wait()         // the error is that it was killed
	b.cmd = nil
}
