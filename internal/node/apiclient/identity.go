package apiclient

import (
	"context"
	"crypto/tls"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Identity is a client certificate that is renewed from time to time, and may not
// be there yet.
type Identity interface {
	// Current is the certificate in force; nil if there is none that is valid.
	Current() *tls.Certificate
	// Valid waits for a certificate that is valid.
	Valid(ctx context.Context) (*tls.Certificate, error)
	// Refused is told that the API server took a request with the certificate for
	// nobody's.
	Refused(cert *tls.Certificate)
}

// httpClient makes a client with the credentials of rc, or with id instead of them,
// and with wrap, unless that is nil, around its transport.
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
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return identified{next, id} })
	tc, err := rc.TransportConfig()
	if err != nil {
		return nil, err
	}
	// Asked for with each connection; those that are open keep theirs.
	tc.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: func() (*tls.Certificate, error) { return id.Current(), nil }}
	rt, err := transport.New(tc)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt, Timeout: rc.Timeout}, nil
}

// identified holds requests until there is a certificate to make them with. Without
// one they would reach the server as nobody's, be refused, and be tried again ever
// less often; so they go out as soon as they can.
type identified struct {
	next http.RoundTripper
	id   Identity
}

func (t identified) RoundTrip(req *http.Request) (*http.Response, error) {
	cert, err := t.id.Valid(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper's duty; the error is the one above
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.id.Refused(cert)
	}
	return resp, err
}

// WrappedRoundTripper is for those who look for the transport below.
func (t identified) WrappedRoundTripper() http.RoundTripper { return t.next }
