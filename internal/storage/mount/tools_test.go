package mount

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mount starts a helper that retries for a long time. It is killed when the attempt ends.
func TestMountHelperIsKilledWithMount(t *testing.T) {
	dir := t.TempDir()
	alive := filepath.Join(dir, "alive")
	for name, script := range map[string]string{
		"mount":     "\"${0%/*}/mount.nfs\" &\nwait\n",
		"mount.nfs": "exec 3> " + alive + "\necho here >&3\nexec /bin/sleep 600\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	must(t, unix.Mkfifo(alive, 0o600))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Tools{Path: dir}.Mount(ctx, "nfs", "server:/", dir, nil) }()
	// The helper keeps the other end open as long as it runs.
	end, err := os.Open(alive)
	must(t, err)
	defer end.Close()
	must(t, end.SetReadDeadline(time.Now().Add(20*time.Second)))
	word := make([]byte, 5)
	if _, err := io.ReadFull(end, word); err != nil || string(word) != "here\n" {
		t.Fatalf("the helper wrote %q, %v", word, err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Mount = %v", err)
	}
	if _, err := end.Read(word); !errors.Is(err, io.EOF) {
		t.Errorf("the helper lives on: %v", err)
	}
}
