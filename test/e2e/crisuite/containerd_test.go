package crisuite

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"keelson/test/images"
	suite "keelson/test/kit/crisuite"
	"keelson/test/kit/need"
	"keelson/test/parts"
	"keelson/test/rig"
)

// TestContainerd runs the suite on the newest containerd, and on the release
// in Debian, which has no events.
func TestContainerd(t *testing.T) {
	need.Root(t, "running containers")
	for _, source := range []string{"built", "debian"} {
		t.Run(source, func(t *testing.T) {
			shell := shellArchive(t)
			r := rig.Start(t, rig.Options{Runtime: &rig.RuntimeConfig{Source: source, Images: []string{shell}}})
			conn, err := grpc.NewClient(r.Runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			suite.Run(t, suite.Config{
				Conn:     conn,
				Image:    images.Shell,
				Old:      source == "debian",
				Patience: 5 * time.Minute,
			})
		})
	}
}

// shellArchive makes an image of a static busybox.
func shellArchive(t *testing.T) string {
	t.Helper()
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	busybox, err := b.StaticBusybox(ctx)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := images.ShellArchive(ctx, busybox, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return archive
}
