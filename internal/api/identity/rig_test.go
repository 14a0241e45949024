package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson/internal/api/client"
	"keelson/test/kit/fakeapi"
)

// authority is a cluster in memory that approves and signs requests.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	life atomic.Int64 // lifetime of certificates in nanoseconds
	api  *fakeapi.Server
	c    kubernetes.Interface
}

func newAuthority(t testing.TB, life time.Duration) *authority {
	t.Helper()
	key, _, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{
		t:   t,
		key: key,
		api: fakeapi.New(),
		cert: &x509.Certificate{
			SerialNumber:          big.NewInt(1),
			Subject:               pkix.Name{CommonName: "ca"},
			NotBefore:             time.Now().Add(-time.Hour),
			NotAfter:              time.Now().Add(87600 * time.Hour),
			IsCA:                  true,
			BasicConstraintsValid: true,
		},
	}
	a.life.Store(int64(life))
	a.c = a.api.Client()
	return a
}

// requests returns the API of the cluster for the code under test.
func (a *authority) requests() Requests {
	c, err := client.NewFor(a.api.RESTConfig(), client.Config{Version: "v1", ContentType: "application/json"})
	if err != nil {
		a.t.Fatal(err)
	}
	return c.CertificateSigningRequests
}

// sign issues the requested certificate, which is valid from now on.
func (a *authority) sign(csr []byte) []byte {
	a.t.Helper()
	block, _ := pem.Decode(csr)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      r.Subject,
		DNSNames:     r.DNSNames,
		IPAddresses:  r.IPAddresses,
		NotBefore:    now,
		NotAfter:     now.Add(time.Duration(a.life.Load())),
	}, a.cert, r.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue puts a certificate for a template in a store, as an earlier agent would have.
func (a *authority) issue(s *Store, template *x509.CertificateRequest) {
	a.t.Helper()
	cert, key := a.pair(template)
	if _, err := s.Update(cert, key); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) pair(template *x509.CertificateRequest) (cert, key []byte) {
	a.t.Helper()
	k, key, err := newKey()
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.sign(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), key
}

// list returns all requests so far.
func (a *authority) list() []certificatesv1.CertificateSigningRequest {
	a.t.Helper()
	l, err := a.c.CertificatesV1().CertificateSigningRequests().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return l.Items
}

// answer approves and signs a request, or denies it.
func (a *authority) answer(r certificatesv1.CertificateSigningRequest, deny bool) {
	a.t.Helper()
	c := certificatesv1.CertificateSigningRequestCondition{
		Type:   certificatesv1.CertificateApproved,
		Status: corev1.ConditionTrue,
		Reason: "AutoApproved",
	}
	if deny {
		c.Type, c.Reason, c.Message = certificatesv1.CertificateDenied, "NoThanks", "not this one"
	} else {
		r.Status.Certificate = a.sign(r.Spec.Request)
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{c}
	if _, err := a.c.CertificatesV1().CertificateSigningRequests().UpdateStatus(context.Background(), &r,
		metav1.UpdateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

// pending returns the only request without an answer.
func (a *authority) pending() certificatesv1.CertificateSigningRequest {
	a.t.Helper()
	var out []certificatesv1.CertificateSigningRequest
	for _, r := range a.list() {
		if len(r.Status.Conditions) == 0 {
			out = append(out, r)
		}
	}
	if len(out) != 1 {
		a.t.Fatalf("%d requests wait, want 1", len(out))
	}
	return out[0]
}

func newStore(t testing.TB, pair string) *Store {
	t.Helper()
	s, err := NewStore(StoreConfig{Dir: t.TempDir(), Pair: pair, Log: logTo(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func logTo(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func parseRequest(t testing.TB, r certificatesv1.CertificateSigningRequest) *x509.CertificateRequest {
	t.Helper()
	block, _ := pem.Decode(r.Spec.Request)
	out, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
