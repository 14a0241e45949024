package access

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	authnv1 "k8s.io/api/authentication/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// tokenReviewer creates TokenReviews.
type tokenReviewer interface {
	CreateTokenReview(context.Context, *authnv1.TokenReview) (*authnv1.TokenReview, error)
}

// AuthenticatorConfig holds the configuration of an Authenticator.
type AuthenticatorConfig struct {
	// ClientCAs returns the CAs of client certificates. Nil: client certificates are not accepted.
	ClientCAs func() *x509.CertPool
	// Tokens reviews bearer tokens. Nil: bearer tokens are not accepted.
	Tokens   tokenReviewer
	TokenTTL time.Duration // of cached reviews
	// Anonymous admits requests without credentials as system:anonymous.
	Anonymous  bool
	Registerer prometheus.Registerer
}

// Authenticator authenticates requests. It implements the server's interface.
type Authenticator struct {
	cfg       AuthenticatorConfig
	tokens    *reviewCache[*authnv1.UserInfo]
	reviews   calls
	certsLeft prometheus.Histogram
}

// NewAuthenticator returns an Authenticator. It fails if no method is configured.
func NewAuthenticator(cfg AuthenticatorConfig) (*Authenticator, error) {
	if cfg.ClientCAs == nil && cfg.Tokens == nil && !cfg.Anonymous {
		return nil, errors.New("no authentication method configured")
	}
	a := &Authenticator{
		cfg:     cfg,
		tokens:  newReviewCache[*authnv1.UserInfo](cfg.TokenTTL, cfg.TokenTTL),
		reviews: newCalls(metricAuthnRequests, metricAuthnDuration),
		certsLeft: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricClientCertsLeft,
			Help: "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
			Buckets: []float64{
				0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000,
			},
		}),
	}
	a.tokens.seen = newLookups()
	return a, register(cfg.Registerer, a.tokens.seen, a.reviews.total, a.reviews.duration, a.certsLeft)
}

// Authenticate tries a client certificate, a bearer token, and a token in the WebSocket subprotocols. One valid
// credential is enough. A request with only invalid credentials is rejected, even if anonymous requests are admitted.
// It returns nil without an error if there are no credentials.
func (a *Authenticator) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	var errs []error
	for _, method := range []func(*http.Request) (*authnv1.UserInfo, error){a.byCertificate, a.byBearer,
		a.bySubprotocol} {
		u, err := method(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if u != nil {
			return withGroup(u), nil
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if a.cfg.Anonymous {
		return &authnv1.UserInfo{Username: anonymousUser, Groups: []string{groupUnauthenticated}}, nil
	}
	return nil, nil
}

// withGroup adds the group of authenticated users. It does not modify u, which may be cached.
func withGroup(u *authnv1.UserInfo) *authnv1.UserInfo {
	if u.Username == anonymousUser || slices.Contains(u.Groups, groupAuthenticated) ||
		slices.Contains(u.Groups, groupUnauthenticated) {
		return u
	}
	out := *u
	out.Groups = append(slices.Clone(u.Groups), groupAuthenticated)
	return &out
}

var errInvalidToken = errors.New("invalid bearer token")

// byBearer authenticates by the Authorization header.
func (a *Authenticator) byBearer(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.Tokens == nil {
		return nil, nil
	}
	parts := strings.SplitN(strings.TrimSpace(r.Header.Get("Authorization")), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") || parts[1] == "" {
		return nil, nil
	}
	u, err := a.byToken(r.Context(), parts[1])
	if err == nil {
		r.Header.Del("Authorization") // not needed any more
	}
	return u, err
}

const (
	subprotocolHeader = "Sec-Websocket-Protocol"
	subprotocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// bySubprotocol authenticates by a token in the WebSocket subprotocols, where browsers can put one. The token is
// removed, so that it is neither passed on nor echoed.
func (a *Authenticator) bySubprotocol(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.Tokens == nil || !wsstream.IsWebSocketRequest(r) {
		return nil, nil
	}
	var tokens, others []string
	for _, line := range r.Header.Values(subprotocolHeader) {
		for p := range strings.SplitSeq(line, ",") {
			p = strings.TrimSpace(p)
			if t, ok := strings.CutPrefix(p, subprotocolPrefix); ok {
				tokens = append(tokens, t)
			} else {
				others = append(others, p)
			}
		}
	}
	switch {
	case len(tokens) == 0 || tokens[0] == "" && len(tokens) == 1:
		return nil, nil
	case len(tokens) > 1:
		return nil, errors.New("multiple base64.bearer.authorization tokens specified")
	case len(others) == 0:
		return nil, errors.New("missing additional subprotocol")
	}
	token, err := base64.RawURLEncoding.DecodeString(tokens[0])
	if err != nil {
		return nil, errors.New("invalid base64.bearer.authorization token encoding")
	}
	if !utf8.Valid(token) {
		return nil, errors.New("invalid base64.bearer.authorization token")
	}
	u, err := a.byToken(r.Context(), string(token))
	if err == nil {
		r.Header.Set(subprotocolHeader, strings.Join(others, ","))
	}
	return u, err
}

// byToken reviews a token. It never returns nil without an error.
func (a *Authenticator) byToken(ctx context.Context, token string) (*authnv1.UserInfo, error) {
	u, err := a.tokens.get(ctx, []byte(token), func(ctx context.Context) (*authnv1.UserInfo, bool, error) {
		review := &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}
		var got *authnv1.TokenReview
		err := withRetry(ctx, func(ctx context.Context) error {
			return a.reviews.count(func() (err error) {
				got, err = a.cfg.Tokens.CreateTokenReview(ctx, review)
				return err
			})
		})
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("review token: %w", err)
		case got.Status.Authenticated:
			return &got.Status.User, true, nil
		case got.Status.Error != "":
			// Not cached, because the API server may answer differently the next time.
			return nil, false, fmt.Errorf("review token: %s", got.Status.Error)
		}
		return nil, false, nil
	})
	if err == nil && u == nil {
		err = errInvalidToken
	}
	return u, err
}
