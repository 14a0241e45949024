package socket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Listen makes the directory, and replaces the socket that a killed agent has left.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "agent.sock")
	for range 2 {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		l.(*net.UnixListener).SetUnlinkOnClose(false) // as when the agent is killed
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A path that cannot be used is an error. A directory with content is not removed.
func TestListenFails(t *testing.T) {
	dir := t.TempDir()
	file, full := filepath.Join(dir, "file"), filepath.Join(dir, "full")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(full, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(file, "agent.sock"): "make directory of socket: ",
		full:                              "remove socket of an earlier agent: ",
		filepath.Join(dir, strings.Repeat("long", 40)): "listen on ",
	} {
		if _, err := Listen(path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want an error that begins with %q", err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "more")); err != nil {
		t.Error(err)
	}
}
