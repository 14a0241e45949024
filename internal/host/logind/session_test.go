package logind

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestDialTimeout: a bus that accepts connections and never answers, as a stopped process does,
// does not block Dial when its context ends.
func TestDialTimeout(t *testing.T) {
	dir, err := os.MkdirTemp("", "bus") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hungUp := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			hungUp <- err
			return
		}
		defer c.Close()
		buf := make([]byte, 1)
		if _, err := io.ReadFull(c, buf); err != nil { // the client has sent its first byte
			hungUp <- err
			return
		}
		cancel()
		_, err = io.Copy(io.Discard, c)
		hungUp <- err
	}()
	if s, err := Dial(ctx); err == nil {
		s.Close()
		t.Error("there is a session with a bus that says nothing")
	}
	if err := <-hungUp; err != nil {
		t.Errorf("the connection was not closed: %v", err)
	}
}
