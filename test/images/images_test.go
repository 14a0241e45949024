package images

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestOwnImagesReadBackAsTheyWereMeant(t *testing.T) {
	file, err := Own(t.Context(), "../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, entry, user, file string }{
		{Pause, "/pause", "65535:65535", "pause"},
		{PauseSandbox, "/pause", "65535:65535", "pause"},
		{Demo, "/demo", "", "demo"},
	} {
		tag, err := name.NewTag(c.name)
		if err != nil {
			t.Fatal(err)
		}
		img, err := tarball.ImageFromPath(file, &tag)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		cfg, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Config.Entrypoint; len(got) != 1 || got[0] != c.entry {
			t.Errorf("%s: entrypoint %v, want %s", c.name, got, c.entry)
		}
		if cfg.Config.User != c.user {
			t.Errorf("%s: user %q, want %q", c.name, cfg.Config.User, c.user)
		}
		if !bytes.HasPrefix(content(t, img)[c.file], []byte("\x7fELF")) {
			t.Errorf("%s: /%s is no program", c.name, c.file)
		}
	}
}

func TestSameFilesGiveTheSameDigest(t *testing.T) {
	digest := func() string {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "a"), []byte("same"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(root, "a"), filepath.Join(root, "b")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("a", filepath.Join(root, "c")); err != nil {
			t.Fatal(err)
		}
		img, err := Image{Names: []string{"x:1"}, Root: root, Config: v1.Config{User: "1"}}.Build()
		if err != nil {
			t.Fatal(err)
		}
		if c := content(t, img); string(c["a"]) != "same" || len(c) != 3 {
			t.Fatalf("content %q, want a, b and c", c)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	if a, b := digest(), digest(); a != b {
		t.Errorf("digests differ: %s and %s", a, b)
	}
}

// content reads the only layer of an image.
func content(t *testing.T, img v1.Image) map[string][]byte {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers (%v), want one", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}
