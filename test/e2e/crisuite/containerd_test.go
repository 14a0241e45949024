package crisuite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"keelson/test/images"
	suite "keelson/test/kit/crisuite"
	"keelson/test/parts"
	"keelson/test/rig"
)

const shellImage = "keelson.local/shell:1"

// TestContainerd runs the suite on the newest containerd, and on the release
// that Debian has, which knows no events.
func TestContainerd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	for _, source := range []string{"built", "debian"} {
		t.Run(source, func(t *testing.T) {
			shell := shellArchive(t)
			r := rig.Start(t, rig.Options{Runtime: &rig.RuntimeConfig{Source: source, Images: []string{shell}}})
			conn, err := grpc.NewClient(r.Runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			suite.Run(t, suite.Config{Conn: conn, Image: shellImage, Old: source == "debian", Patience: time.Minute})
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
	unpacked, err := b.Unpack(ctx, "shell", false, "busybox-static")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	for _, d := range []string{"bin", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(filepath.Join(unpacked, "bin", "busybox"))
	if os.IsNotExist(err) {
		program, err = os.ReadFile(filepath.Join(unpacked, "usr", "bin", "busybox"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "echo", "sleep", "true", "false", "cat"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "shell.tar")
	im := images.Image{Names: []string{shellImage}, Root: root, Config: v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}}}
	if err := images.Archive(file, im); err != nil {
		t.Fatal(err)
	}
	return file
}
