package cert

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
)

// Pair is a serving certificate with its key, from two files, which may be the same.
type Pair struct{ *reloadable[*tls.Certificate] }

// NewPair reads the files. With reload, it reads them again when they change.
func NewPair(certFile, keyFile string, reload bool, log *slog.Logger) (*Pair, error) {
	r, err := newReloadable(func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &c, err
	}, reload, log, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load serving certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return &Pair{r}, nil
}

// GetCertificate implements tls.Config.GetCertificate.
func (p *Pair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.get(), nil }

// Pool is a set of CAs from a file.
type Pool struct{ *reloadable[*x509.CertPool] }

// NewPool reads the file. With reload, it reads it again when it changes.
func NewPool(file string, reload bool, log *slog.Logger) (*Pool, error) {
	r, err := newReloadable(func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no certificate", file)
		}
		return pool, nil
	}, reload, log, file)
	if err != nil {
		return nil, fmt.Errorf("load client CA file: %w", err)
	}
	return &Pool{r}, nil
}

// ClientCAs returns the current CAs.
func (p *Pool) ClientCAs() *x509.CertPool { return p.get() }
