package cert

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keelson/test/kit/parity"
	"keelson/test/kit/renames"
)

func TestSelfSigned(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-24")
	dir := filepath.Join(t.TempDir(), "pki")
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	now := time.Now()
	var reported []string
	make := func(now time.Time) (cert, key []byte) {
		t.Helper()
		certFile, keyFile, err := SelfSigned(dir, "node-1", now,
			func(err error) { reported = append(reported, err.Error()) }, log)
		if err != nil {
			t.Fatal(err)
		}
		if certFile != filepath.Join(dir, "kubelet.crt") || keyFile != filepath.Join(dir, "kubelet.key") {
			t.Fatalf("files %s, %s", certFile, keyFile)
		}
		if i, err := os.Stat(keyFile); err != nil || i.Mode().Perm() != 0o600 {
			t.Fatalf("key: %v, %v", i.Mode(), err)
		}
		if cert, err = os.ReadFile(certFile); err != nil {
			t.Fatal(err)
		}
		if key, err = os.ReadFile(keyFile); err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	cert, key := make(now)
	pair, err := NewPair(filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key"), false, log)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pair.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Leaf.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
	again := func(what string, now time.Time, want bool) {
		t.Helper()
		c2, k2 := make(now)
		if same := bytes.Equal(cert, c2) && bytes.Equal(key, k2); same != want {
			t.Errorf("%s: kept %v, want %v", what, same, want)
		}
		cert, key = c2, k2
	}
	again("a good pair", now, true)
	if err := os.Remove(filepath.Join(dir, "kubelet.key")); err != nil {
		t.Fatal(err)
	}
	again("half a pair", now, false)
	if err := os.WriteFile(filepath.Join(dir, "kubelet.crt"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	again("a broken pair", now, false)
	if b, err := os.ReadFile(filepath.Join(dir, "kubelet.crt.bad")); err != nil || string(b) != "-----BEGIN" {
		t.Errorf("put aside: %q, %v", b, err)
	}
	again("an expired pair", now.AddDate(2, 0, 0), false)
	other, _ := make(now.AddDate(4, 0, 0)) // and again
	if err := os.WriteFile(filepath.Join(dir, "kubelet.crt"), cert, 0o600); err != nil || bytes.Equal(cert, other) {
		t.Fatal(err)
	}
	cert = other
	again("a certificate of another key", now.AddDate(4, 0, 0), false)
	for i, why := range []string{
		"kubelet.key: no such file",
		"failed to find any PEM data",
		"expired on",
		"expired on",
		"private key does not match public key",
	} {
		if len(reported) != 5 || !strings.HasPrefix(reported[i], "use "+filepath.Join(dir, "kubelet.crt")+": ") ||
			!strings.Contains(reported[i], why) || !strings.HasSuffix(reported[i], "kubelet.crt.bad") {
			t.Fatalf("reported %q, want %s", reported, why)
		}
	}
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	fresh := func() {
		t.Helper()
		for _, f := range []string{crt, key} {
			if err := os.RemoveAll(f); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := SelfSigned(dir, "node-1", time.Now(), func(error) {},
			slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	fresh()
	var logged bytes.Buffer
	pair, err := NewPair(crt, key, true, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := NewPair(crt, key, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := NewPool(crt, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pair.every, pool.every = 0, 0
	leaf := func(p *Pair) *x509.Certificate {
		t.Helper()
		c, err := p.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	first, firstPool := leaf(pair), pool.ClientCAs()
	if pool.ClientCAs() != firstPool {
		t.Error("the pool changed without its file")
	}
	fresh()
	second := leaf(pair)
	if second.Equal(first) {
		t.Error("the new pair is not served")
	}
	if !leaf(fixed).Equal(first) {
		t.Error("reloaded although configured not to")
	}
	if pool.ClientCAs().Equal(firstPool) {
		t.Error("the new authorities do not count")
	}
	// With invalid content the last valid one stays in use, and the error is logged once.
	for _, bad := range []func() error{
		func() error { return os.WriteFile(crt, []byte("nonsense"), 0o600) },
		func() error { return os.Remove(crt) },
	} {
		if err := bad(); err != nil {
			t.Fatal(err)
		}
		logged.Reset()
		for range 5 {
			if !leaf(pair).Equal(second) {
				t.Fatal("the last good pair is gone")
			}
		}
		if n := strings.Count(logged.String(), "failed to reload"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, &logged)
		}
	}
	fresh()
	if leaf(pair).Equal(second) {
		t.Error("not reloaded after the files came back")
	}
	for _, f := range []string{filepath.Join(dir, "none"), crt + "x"} {
		if _, err := NewPool(f, true, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), f) {
			t.Errorf("missing file: %v", err)
		}
	}
}

// A generated certificate is renamed into place, also when it replaces an expired one.
func TestSelfSignedIsRenamedIntoPlace(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-57")
	dir := filepath.Join(t.TempDir(), "pki")
	w := renames.Watch(t, dir)
	for _, now := range []time.Time{time.Now().Add(-20 * 365 * 24 * time.Hour), time.Now()} {
		if _, _, err := SelfSigned(dir, "node", now, func(error) {}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if there := w.Check(t); len(there) != 2 {
		t.Errorf("%q are there, want the certificate and the key", there)
	}
}
