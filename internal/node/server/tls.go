package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
)

// TLS says how the authenticated port speaks TLS. Zero values mean Go's
// defaults.
type TLS struct {
	MinVersion       uint16
	CipherSuites     []uint16
	CurvePreferences []tls.CurveID

	// GetCertificate returns the serving certificate. While there is none it
	// returns nil or an error, and handshakes fail.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs are the authorities of client certificates. If it is nil, no
	// client certificate is asked for. It may return another pool each time.
	ClientCAs func() *x509.CertPool
}

var errNoCertificate = errors.New("no serving certificate available for the kubelet")

func (t TLS) config() *tls.Config {
	base := &tls.Config{
		MinVersion:       t.MinVersion,
		CipherSuites:     t.CipherSuites,
		CurvePreferences: t.CurvePreferences,
		NextProtos:       []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			// The name asked for does not matter: a node has one certificate.
			c, err := t.GetCertificate(hello)
			if err == nil && c == nil {
				err = errNoCertificate
			}
			return c, err
		},
	}
	if t.ClientCAs == nil {
		return base
	}
	// A certificate is asked for, not required, and not verified in the
	// handshake: a caller with a foreign one may still hold a good token.
	base.ClientAuth = tls.RequestClientCert
	var (
		mu   sync.Mutex
		last *tls.Config // base with ClientCAs
	)
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := t.ClientCAs()
		mu.Lock()
		defer mu.Unlock()
		if last == nil || last.ClientCAs != pool {
			last = base.Clone()
			last.ClientCAs = pool
			last.GetConfigForClient = nil
		}
		return last, nil
	}
	return base
}
