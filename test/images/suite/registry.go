package suite

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"keelson/test/images"
)

// registry writes the pause image in the layout of agnhost's fake registry: <name>/manifests/<tag> holds a digest, and
// <name>/{manifests,blobs}/sha256/ab/<hex>/data the content.
func (s *builder) registry(ctx context.Context, dir string) error {
	root := filepath.Join(s.work, "registry-pause")
	if err := images.Compile(ctx, s.checkout, "./test/images/pause", filepath.Join(root, "pause")); err != nil {
		return err
	}
	img, err := images.Image{
		Names:  []string{"pause"},
		Root:   root,
		Config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"},
	}.Build()
	if err != nil {
		return err
	}
	img = mutate.MediaType(img, types.DockerManifestSchema2)
	index := mutate.IndexMediaType(mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}},
	}), types.DockerManifestList)

	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		r, err := l.Compressed()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := keep(dir, "blobs", digest, data); err != nil {
			return err
		}
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	name, err := img.ConfigName()
	if err != nil {
		return err
	}
	if err := keep(dir, "blobs", name, config); err != nil {
		return err
	}
	var top v1.Hash
	for _, m := range []interface {
		RawManifest() ([]byte, error)
		Digest() (v1.Hash, error)
	}{img, index} {
		data, err := m.RawManifest()
		if err != nil {
			return err
		}
		if top, err = m.Digest(); err != nil {
			return err
		}
		if err := keep(dir, "manifests", top, data); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "pause", "manifests", "testing"), []byte(top.String()+"\n"), 0o644)
}

func keep(dir, kind string, digest v1.Hash, data []byte) error {
	at := filepath.Join(dir, "pause", kind, digest.Algorithm, digest.Hex[:2], digest.Hex)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(at, "data"), data, 0o644)
}

// selfSigned makes the certificate that agnhost's porter serves.
func selfSigned(cert, key string) error {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return err
	}
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return err
	}
	return os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o644)
}
