package cert

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
)

// Pair is a serving certificate with its key, from two files (which may be one).
type Pair struct{ *reloaded[*tls.Certificate] }

// NewPair reads the files, and with reload looks at them again later.
func NewPair(certFile, keyFile string, reload bool, log *slog.Logger) (*Pair, error) {
	r, err := newReloaded(func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &c, err
	}, reload, log, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load serving certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return &Pair{r}, nil
}

// GetCertificate is for tls.Config.
func (p *Pair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.get(), nil }

// Pool is a set of authorities, from one file.
type Pool struct{ *reloaded[*x509.CertPool] }

// NewPool reads the file, and with reload looks at it again later.
func NewPool(file string, reload bool, log *slog.Logger) (*Pool, error) {
	r, err := newReloaded(func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", file)
		}
		return pool, nil
	}, reload, log, file)
	if err != nil {
		return nil, fmt.Errorf("load client CA file: %w", err)
	}
	return &Pool{r}, nil
}

// ClientCAs are the authorities as of now.
func (p *Pool) ClientCAs() *x509.CertPool { return p.get() }
