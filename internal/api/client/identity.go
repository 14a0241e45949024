package client

import (
	"context"
	"crypto/tls"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Identity is a rotated client certificate.
type Identity interface {
	// Current returns the current certificate, or nil if there is no valid one.
	Current() *tls.Certificate
	// Valid waits for a valid certificate.
	Valid(ctx context.Context) (*tls.Certificate, error)
	// Refused is called when the API server rejected a request with the certificate as unauthenticated.
	Refused(cert *tls.Certificate)
}

// httpClient returns an HTTP client with the credentials of rc, or with those of id if it is not nil. wrap wraps the
// transport if it is not nil.
func httpClient(rc *rest.Config, id Identity, wrap transport.WrapperFunc) (*http.Client, error) {
	if id != nil {
		rc = rest.AnonymousClientConfig(rc)
	}
	if wrap != nil {
		rc.Wrap(wrap)
	}
	if id == nil {
		return rest.HTTPClientFor(rc)
	}
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return authenticatedTransport{next, id} })
	tc, err := rc.TransportConfig()
	if err != nil {
		return nil, err
	}
	// Called for each new connection. Open connections keep their certificate.
	tc.TLS.GetCertHolder = &transport.GetCertHolder{
		GetCert: func() (*tls.Certificate, error) { return id.Current(), nil },
	}
	rt, err := transport.New(tc)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt, Timeout: rc.Timeout}, nil
}

// authenticatedTransport delays requests until there is a valid certificate. Without one they would be rejected and
// retried with increasing back-off.
type authenticatedTransport struct {
	next http.RoundTripper
	id   Identity
}

func (t authenticatedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	cert, err := t.id.Valid(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // required of a RoundTripper
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.id.Refused(cert)
	}
	return resp, err
}

// WrappedRoundTripper returns the wrapped transport.
func (t authenticatedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
