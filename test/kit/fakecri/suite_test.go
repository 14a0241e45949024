package fakecri_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"keelson/test/kit/crisuite"
	"keelson/test/kit/fakecri"
)

// TestSuite runs the suite for runtimes against the fake, over a real
// socket.
func TestSuite(t *testing.T) {
	for name, opts := range map[string]fakecri.Options{"new": {}, "old": {Old: true}} {
		t.Run(name, func(t *testing.T) {
			rt := fakecri.New(opts)
			t.Cleanup(rt.Close)
			rt.AddImage(fakecri.Image{Name: "busybox:1.37", Size: 4 << 20, Local: true})
			socket := filepath.Join(t.TempDir(), "cri.sock")
			if err := rt.Listen(socket); err != nil {
				t.Fatal(err)
			}
			conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			crisuite.Run(t, crisuite.Config{Conn: conn, Image: "busybox:1.37", Old: opts.Old})
		})
	}
}
