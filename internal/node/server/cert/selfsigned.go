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

	"keelson/internal/node/checkpoint"
)

// Names of the pair the agent makes for itself, in its certificate directory.
const (
	SelfSignedCert = "kubelet.crt"
	SelfSignedKey  = "kubelet.key"
)

// SelfSigned returns the paths of a serving pair in dir, making one for host if
// there is none. A good pair is kept over restarts. One that is broken, half
// there or out of date serves nobody: it is put aside as *.bad, which is told, and
// replaced.
func SelfSigned(dir, host string, now time.Time, unusable func(error), log *slog.Logger) (certFile, keyFile string, err error) {
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
		log.Warn("replacing self-signed serving certificate", "file", certFile, "aside", aside, "cause", why)
		unusable(fmt.Errorf("use %s: %w; it is kept as %s", certFile, why, aside))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", fmt.Errorf("make certificate directory: %w", err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return "", "", fmt.Errorf("generate self-signed certificate for %q: %w", host, err)
	}
	// The key first: a certificate without its key is what usable would find
	// after a crash in between.
	if err := checkpoint.Put(keyFile, key, checkpoint.How{Mode: 0o600, Sync: true}); err != nil {
		return "", "", err
	}
	if err := checkpoint.Put(certFile, cert, checkpoint.How{Mode: 0o644, Sync: true}); err != nil {
		return "", "", err
	}
	log.Info("made self-signed serving certificate", "file", certFile, "host", host)
	return certFile, keyFile, nil
}

// usable says what is wrong with a pair, or nil.
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
