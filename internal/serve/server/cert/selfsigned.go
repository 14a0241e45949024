package cert

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"keelson/internal/host/checkpoint"
)

// Names of the self-signed pair in the certificate directory.
const (
	SelfSignedCert = "kubelet.crt"
	SelfSignedKey  = "kubelet.key"
)

// SelfSigned returns the paths of a self-signed serving pair in dir. It makes one for host if there is none. A valid
// pair is kept over restarts. One that is broken, incomplete or expired is renamed to *.bad, reported to unusable, and
// replaced.
func SelfSigned(
	dir, host string, now time.Time, unusable func(error), log *slog.Logger,
) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, SelfSignedCert), filepath.Join(dir, SelfSignedKey)
	why := usable(certFile, keyFile, now)
	if why == nil {
		return certFile, keyFile, nil
	}
	aside := ""
	for _, f := range []string{certFile, keyFile} {
		switch err := errors.Join(os.RemoveAll(f+".bad"), os.Rename(f, f+".bad")); {
		case err == nil && aside == "":
			aside = f + ".bad"
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", "", fmt.Errorf("put aside %s: %w", f, err)
		}
	}
	if aside != "" {
		log.Warn("replacing self-signed serving certificate", "file", certFile, "renamedTo", aside, "reason", why)
		unusable(fmt.Errorf("use %s: %w; it is kept as %s", certFile, why, aside))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", fmt.Errorf("make certificate directory: %w", err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return "", "", fmt.Errorf("generate self-signed certificate for %q: %w", host, err)
	}
	// The key first: after a crash in between, usable finds the certificate without its key.
	if err := checkpoint.Put(keyFile, key, checkpoint.How{Mode: 0o600, Sync: true}); err != nil {
		return "", "", err
	}
	if err := checkpoint.Put(certFile, cert, checkpoint.How{Mode: 0o644, Sync: true}); err != nil {
		return "", "", err
	}
	log.Info("generated self-signed serving certificate", "file", certFile, "host", host)
	return certFile, keyFile, nil
}

// usable returns why a pair cannot be used, or nil.
func usable(certFile, keyFile string, now time.Time) error {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	if now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("expired on %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}
