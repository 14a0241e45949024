package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// fakeReviews responds after a delay, fails as often as configured, and counts calls. Token good belongs to jane. She
// may get, and there are no other rights.
type fakeReviews struct {
	takes time.Duration

	mu     sync.Mutex
	fail   []error
	asked  int
	denied bool // jane no longer has the right
}

func (f *fakeReviews) answer() error {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if len(f.fail) == 0 {
		return nil
	}
	err := f.fail[0]
	f.fail = f.fail[1:]
	return err
}

func (f *fakeReviews) CreateTokenReview(_ context.Context, tr *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	if err := f.answer(); err != nil {
		return nil, err
	}
	out := &authnv1.TokenReview{}
	if tr.Spec.Token == "good" {
		out.Status = authnv1.TokenReviewStatus{
			Authenticated: true,
			User:          authnv1.UserInfo{Username: "jane", Groups: []string{"dev"}},
		}
	}
	return out, nil
}

func (f *fakeReviews) CreateSubjectAccessReview(
	_ context.Context, sar *authzv1.SubjectAccessReview,
) (*authzv1.SubjectAccessReview, error) {
	if err := f.answer(); err != nil {
		return nil, err
	}
	out := &authzv1.SubjectAccessReview{}
	out.Status.Allowed = !f.denied && sar.Spec.User == "jane" && sar.Spec.ResourceAttributes.Verb == "get"
	return out, nil
}

func bearer(token string) *http.Request {
	return (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(context.Background())
}

func newTokens(t *testing.T, f *fakeReviews) *Authenticator {
	t.Helper()
	a, err := NewAuthenticator(AuthenticatorConfig{Tokens: f, TokenTTL: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTokenReviewCache(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-06")
	synctest.Test(t, func(t *testing.T) {
		f := &fakeReviews{}
		a := newTokens(t, f)
		check := func(asked int) {
			t.Helper()
			u, err := a.Authenticate(bearer("good"))
			if err != nil || u.Username != "jane" || !slices.Equal(u.Groups, []string{"dev", "system:authenticated"}) {
				t.Fatalf("good token: %v, %v", u, err)
			}
			if u, err := a.Authenticate(bearer("bad")); err == nil {
				t.Fatalf("bad token: %v", u)
			}
			if f.asked != asked {
				t.Errorf("asked %d times, want %d", f.asked, asked)
			}
		}
		check(2)
		time.Sleep(2*time.Minute - time.Second)
		check(2)
		time.Sleep(time.Second)
		check(4)
	})
}

func TestAccessReviewCache(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-33")
	synctest.Test(t, func(t *testing.T) {
		f := &fakeReviews{}
		a, err := NewAuthorizer(AuthorizerConfig{
			NodeName:   "n",
			Reviews:    f,
			AllowedTTL: 5 * time.Minute,
			DeniedTTL:  30 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		jane := &authnv1.UserInfo{Username: "jane"}
		check := func(verb string, want bool, asked int) {
			t.Helper()
			got, err := a.Allowed(t.Context(), jane, verb, "proxy")
			if err != nil || got != want || f.asked != asked {
				t.Errorf("%s: %v, %v, asked %d times; want %v, %d times", verb, got, err, f.asked, want, asked)
			}
		}
		check("get", true, 1)
		check("create", false, 2)
		f.denied = true
		time.Sleep(29 * time.Second)
		check("create", false, 2)
		time.Sleep(time.Second)
		check("create", false, 3)
		time.Sleep(5*time.Minute - 31*time.Second)
		check("get", true, 3)
		time.Sleep(time.Second)
		check("get", false, 4)
		// All fields of the user are part of the cache key.
		for i, u := range []authnv1.UserInfo{{
			Username: "jane",
			UID:      "1",
		}, {
			Username: "jane",
			Groups:   []string{"a"},
		}, {Username: "jane", Extra: map[string]authnv1.ExtraValue{"k": {"v"}}}} {
			if _, err := a.Allowed(t.Context(), &u, "get", "proxy"); err != nil || f.asked != 5+i {
				t.Errorf("user %d: asked %d times, %v", i, f.asked, err)
			}
		}
	})
}

func TestConcurrentReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeReviews{takes: time.Second}
		a := newTokens(t, f)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r := bearer("good")
				if i == 0 { // the first client gives up; the others still get the result
					ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
					defer cancel()
					if _, err := a.Authenticate(r.WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("left: %v", err)
					}
					return
				}
				if _, err := a.Authenticate(r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if f.asked != 1 {
			t.Errorf("asked %d times for one token", f.asked)
		}
	})
}

func TestTokenCacheMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		f := &fakeReviews{takes: time.Second}
		a, err := NewAuthenticator(AuthenticatorConfig{Tokens: f, TokenTTL: time.Minute, Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		ask := func() {
			if _, err := a.Authenticate(bearer("good")); err != nil {
				t.Error(err)
			}
		}
		shows := func(want map[string]float64) {
			t.Helper()
			got := scrape.Of(t, a.tokens.seen)
			for series, n := range want {
				if got[series] != n {
					t.Errorf("%s is %v, want %v", series, got[series], n)
				}
			}
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(ask)
		}
		synctest.Wait()
		shows(map[string]float64{
			"authentication_token_cache_active_fetch_count{status=in_flight}": 1,
			"authentication_token_cache_active_fetch_count{status=blocked}":   3,
		})
		wg.Wait()
		ask()
		shows(map[string]float64{
			"authentication_token_cache_active_fetch_count{status=in_flight}":  0,
			"authentication_token_cache_active_fetch_count{status=blocked}":    0,
			"authentication_token_cache_request_total{status=miss}":            3,
			"authentication_token_cache_request_total{status=hit}":             1,
			"authentication_token_cache_request_duration_seconds{status=miss}": 3,
			"authentication_token_cache_request_duration_seconds{status=hit}":  1,
			"authentication_token_cache_fetch_total{status=ok}":                1,
			"authentication_token_cache_fetch_total{status=error}":             0,
		})
	})
}

func TestRetries(t *testing.T) {
	parity.Proves(t, "SRV-12")
	busy := apierrors.NewInternalError(errors.New("etcd is away"))
	for _, c := range []struct {
		name     string
		fail     []error
		asked    int
		ok       bool
		atLeast  time.Duration
		noLonger time.Duration
	}{
		{"a short outage is waited out", []error{busy, apierrors.NewTooManyRequests("later", 0)}, 3, true,
			1250 * time.Millisecond, 1500 * time.Millisecond},
		{"five tries are enough", []error{busy, busy, busy, busy, busy, busy}, 5, false,
			4062 * time.Millisecond, 4875 * time.Millisecond},
		{"a refusal is final", []error{apierrors.NewForbidden(schema.GroupResource{}, "", nil)}, 1, false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeReviews{fail: c.fail}
				a := newTokens(t, f)
				start := time.Now()
				_, err := a.Authenticate(bearer("good"))
				took := time.Since(start)
				if (err == nil) != c.ok || f.asked != c.asked || took < c.atLeast || took > c.noLonger {
					t.Errorf("err %v, asked %d, took %v; want ok=%v, %d, %v to %v",
						err, f.asked, took, c.ok, c.asked, c.atLeast, c.noLonger)
				}
				if f.fail = nil; !c.ok { // errors are not cached
					if _, err := a.Authenticate(bearer("good")); err != nil {
						t.Errorf("after the outage: %v", err)
					}
				}
			})
		})
	}
}

// A flood of invalid tokens neither exceeds the size limit of the cache nor evicts valid tokens.
func TestReviewCacheIsBounded(t *testing.T) {
	f := &fakeReviews{}
	a := newTokens(t, f)
	if _, err := a.Authenticate(bearer("good")); err != nil {
		t.Fatal(err)
	}
	for i := range 2*maxAnswers + 1 {
		if _, err := a.Authenticate(bearer(fmt.Sprint("bad-", i))); err == nil {
			t.Fatal("a bad token was taken")
		}
	}
	if n := len(a.tokens.no.held); n != maxAnswers {
		t.Errorf("%d refusals held, want %d", n, maxAnswers)
	}
	before := f.asked
	if _, err := a.Authenticate(bearer("good")); err != nil || f.asked != before {
		t.Errorf("the good token was dropped from the cache: %v, asked %d more", err, f.asked-before)
	}
}

func TestTokensAreNotStored(t *testing.T) {
	a := newTokens(t, &fakeReviews{})
	if _, err := a.Authenticate(bearer("good")); err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%+v %s", a.tokens.yes.held, a.tokens.secret); strings.Contains(s, "good") {
		t.Errorf("the memory holds the token: %s", s)
	}
}

func TestServerAuthentication(t *testing.T) {
	a := newTokens(t, &fakeReviews{})
	for _, c := range []struct {
		name   string
		header http.Header
		user   string
		failed bool
	}{
		{"none", nil, "", false},
		{"lower case scheme", http.Header{"Authorization": {"bearer good"}}, "jane", false},
		{"words after the token are ignored", http.Header{"Authorization": {"Bearer good x"}}, "jane", false},
		{"two spaces make an empty token", http.Header{"Authorization": {"Bearer  good"}}, "", false},
		{"scheme alone", http.Header{"Authorization": {"Bearer"}}, "", false},
		{"another scheme", http.Header{"Authorization": {"Basic good"}}, "", false},
		{"a subprotocol without WebSocket", http.Header{subprotocolHeader: {subprotocolPrefix + "Z29vZA, x"}}, "", false},
		{"a subprotocol", http.Header{
			"Connection":      {"Upgrade"},
			"Upgrade":         {"websocket"},
			subprotocolHeader: {subprotocolPrefix + "Z29vZA, x"},
		}, "jane", false},
		{"a subprotocol with no other", http.Header{
			"Connection":      {"Upgrade"},
			"Upgrade":         {"websocket"},
			subprotocolHeader: {subprotocolPrefix + "Z29vZA"},
		}, "", true},
		{"two tokens", http.Header{
			"Connection":      {"Upgrade"},
			"Upgrade":         {"websocket"},
			subprotocolHeader: {subprotocolPrefix + "Z29vZA", subprotocolPrefix + "Z29vZA, x"},
		}, "", true},
		{"not base64", http.Header{
			"Connection":      {"Upgrade"},
			"Upgrade":         {"websocket"},
			subprotocolHeader: {subprotocolPrefix + "***, x"},
		}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := (&http.Request{Header: c.header.Clone()}).WithContext(t.Context())
			if r.Header == nil {
				r.Header = http.Header{}
			}
			u, err := a.Authenticate(r)
			if (err != nil) != c.failed || (u != nil) != (c.user != "") || u != nil && u.Username != c.user {
				t.Errorf("user %v, error %v", u, err)
			}
			if u != nil && (r.Header.Get("Authorization") != "" ||
				strings.Contains(strings.Join(r.Header.Values(subprotocolHeader), ","), "bearer")) {
				t.Errorf("the token is passed on: %v", r.Header)
			}
		})
	}
}

func TestClientCertificateAuthentication(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-06")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sign := func(tmpl, parent *x509.Certificate) *x509.Certificate {
		t.Helper()
		tmpl.SerialNumber = big.NewInt(now.UnixNano())
		if tmpl.NotAfter.IsZero() {
			tmpl.NotBefore, tmpl.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
		}
		if parent == nil {
			parent = tmpl
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	root := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "root"},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
	middle := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "middle"},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, root)
	withUID := pkix.Name{CommonName: "jane", ExtraNames: []pkix.AttributeTypeAndValue{{Type: uidOID, Value: "u-1"}}}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	for _, c := range []struct {
		name   string
		chain  []*x509.Certificate
		want   string // "user uid groups"
		failed bool
	}{
		{"the subject is the user and its groups", []*x509.Certificate{sign(&x509.Certificate{
			Subject:     pkix.Name{CommonName: "jane", Organization: []string{"dev", "ops"}},
			ExtKeyUsage: client,
		}, root)}, "jane  [dev ops system:authenticated]", false},
		{"a UID", []*x509.Certificate{sign(&x509.Certificate{
			Subject:     withUID,
			ExtKeyUsage: client,
		}, root)}, "jane u-1 [system:authenticated]", false},
		{"by way of an intermediate", []*x509.Certificate{sign(&x509.Certificate{
			Subject:     pkix.Name{CommonName: "jane"},
			ExtKeyUsage: client,
		}, middle), middle}, "jane  [system:authenticated]", false},
		{"an intermediate that is not sent", []*x509.Certificate{sign(&x509.Certificate{
			Subject:     pkix.Name{CommonName: "jane"},
			ExtKeyUsage: client,
		}, middle)}, "", true},
		{"no name", []*x509.Certificate{sign(&x509.Certificate{ExtKeyUsage: client}, root)}, "", false},
		{"expired", []*x509.Certificate{sign(&x509.Certificate{
			Subject:     pkix.Name{CommonName: "jane"},
			ExtKeyUsage: client,
			NotBefore:   now.Add(-2 * time.Hour),
			NotAfter:    now.Add(-time.Hour),
		}, root)}, "", true},
		{"for servers", []*x509.Certificate{sign(&x509.Certificate{
			Subject:     pkix.Name{CommonName: "jane"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, root)}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := NewAuthenticator(AuthenticatorConfig{ClientCAs: func() *x509.CertPool { return pool }})
			if err != nil {
				t.Fatal(err)
			}
			u, err := a.Authenticate(&http.Request{
				TLS:    &tls.ConnectionState{PeerCertificates: c.chain},
				Header: http.Header{},
			})
			got := ""
			if u != nil {
				got = fmt.Sprintf("%s %s %v", u.Username, u.UID, u.Groups)
				if len(u.Extra[credentialIDKey]) != 1 {
					t.Errorf("no credential id: %v", u.Extra)
				}
			}
			if got != c.want || (err != nil) != c.failed {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := NewAuthenticator(AuthenticatorConfig{}); err == nil {
		t.Error("a server without clients was accepted")
	}
	// While there are no CAs, those of the system must not be used.
	a, err := NewAuthenticator(AuthenticatorConfig{ClientCAs: func() *x509.CertPool { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if u, err := a.Authenticate(&http.Request{
		TLS:    &tls.ConnectionState{PeerCertificates: []*x509.Certificate{root}},
		Header: http.Header{},
	}); u != nil || err != nil {
		t.Errorf("without authorities: %v, %v", u, err)
	}
}
