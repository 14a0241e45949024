package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
)

// TLS is the TLS configuration of the authenticated port. Zero values select Go's defaults.
type TLS struct {
	MinVersion       uint16
	CipherSuites     []uint16
	CurvePreferences []tls.CurveID

	// GetCertificate returns the serving certificate. If it returns nil or an error, handshakes fail.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs returns the CAs of client certificates, which may change. Nil: client certificates are not requested.
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
			// The server name does not matter, because a node has one certificate.
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
	// A client certificate is requested, but not required and not verified in the handshake: a client with a
	// certificate of another CA may still have a valid token.
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
