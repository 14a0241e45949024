package objectcache

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// signer is an API server with a signer behind it. It answers when the test releases it.
type signer struct {
	t    *testing.T
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration

	certificates *Certificates

	mu       sync.Mutex
	requests []*certv1beta1.PodCertificateRequest
	looks    int
	gone     bool  // requests are deleted
	err      error // of requests
	answered bool  // requests are answered before Request returns
	silent   bool  // answers are not reported
	events   eventlog.Log
	reported []string // of OnAnswer
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotBefore:             time.Now(),
		NotAfter:              time.Now().Add(1000 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	s := &signer{t: t, ca: ca, key: key, life: 24 * time.Hour}
	s.certificates = NewCertificates(CertificatesConfig{
		API:    s,
		Events: &s.events,
		Now:    time.Now,
		Log:    slog.New(slog.DiscardHandler),
		Node:   func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}} },
		OnAnswer: func(uid types.UID, volume string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reported = append(s.reported, string(uid)+"/"+volume)
		},
	})
	return s
}

func (s *signer) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)},
	}, nil
}

func (s *signer) Request(
	_ context.Context, r *certv1beta1.PodCertificateRequest,
) (*certv1beta1.PodCertificateRequest, error) {
	s.mu.Lock()
	err, now := s.err, s.answered
	if err == nil {
		s.requests = append(s.requests, r.DeepCopy())
	}
	s.mu.Unlock()
	if err == nil && now {
		s.issue()
	}
	return r, err
}

func (s *signer) Look(_ context.Context, namespace, name string) (*certv1beta1.PodCertificateRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	for _, r := range s.requests {
		if r.Name == name && r.Namespace == namespace && !s.gone {
			return r, nil
		}
	}
	return nil, apierrors.NewNotFound(certv1beta1.Resource("podcertificaterequests"), name)
}

// last returns the latest request.
func (s *signer) last() *certv1beta1.PodCertificateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1]
}

func (s *signer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// answer answers the latest request.
func (s *signer) answer(status certv1beta1.PodCertificateRequestStatus) {
	r := s.last()
	s.mu.Lock()
	r.Status = status
	silent := s.silent
	s.mu.Unlock()
	if !silent {
		s.certificates.Seen(r, false)
	}
}

func (s *signer) refuse(kind, reason, message string) {
	s.answer(certv1beta1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}},
	})
}

// issue issues a certificate for the key of the latest request.
func (s *signer) issue() {
	csr, err := x509.ParseCertificateRequest(s.last().Spec.StubPKCS10Request)
	if err != nil {
		s.t.Fatal(err)
	}
	s.issueFor(csr.PublicKey)
}

func (s *signer) issueFor(public any) {
	now := time.Now()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(int64(s.count() + 1)), NotBefore: now, NotAfter: now.Add(s.life)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.ca, public, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	// Text and headers around the certificates are not passed on.
	chain := "issued by hand\n" + string(pem.EncodeToMemory(&pem.Block{
		Type:    "CERTIFICATE",
		Headers: map[string]string{"Note": "x"},
		Bytes:   der,
	}))
	begin, end := metav1.NewTime(now.Add(s.life/2)), metav1.NewTime(leaf.NotAfter)
	s.answer(certv1beta1.PodCertificateRequestStatus{
		CertificateChain: chain,
		BeginRefreshAt:   &begin,
		NotAfter:         &end,
		NotBefore:        ptr.To(metav1.NewTime(now)),
		Conditions: []metav1.Condition{{
			Type:   certv1beta1.PodCertificateRequestConditionTypeIssued,
			Status: metav1.ConditionTrue,
		}},
	})
}

var certPod = &v1.Pod{
	ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"},
	Spec:       v1.PodSpec{ServiceAccountName: "robot"},
}

func (s *signer) get(kind string) (key, chain []byte, renewAt time.Time, err error) {
	return s.certificates.Certificate(s.t.Context(), certPod, "creds", 2, &v1.PodCertificateProjection{
		SignerName:           "example.com/s",
		KeyType:              kind,
		MaxExpirationSeconds: ptr.To[int32](7200),
		UserAnnotations:      map[string]string{"example.com/a": "b"},
	})
}

func waits(err error) bool {
	var w interface{ Waiting() string }
	return errors.As(err, &w)
}

// must returns an issued certificate.
func (s *signer) must(kind string) (key, chain []byte, renewAt time.Time) {
	s.t.Helper()
	key, chain, renewAt, err := s.get(kind)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		s.t.Errorf("the pair does not match: %v", err)
	}
	return key, chain, renewAt
}

func TestKeyTypes(t *testing.T) {
	parity.ProvesPart(t, 6, "VOL-49")
	for kind, want := range map[string]string{
		"RSA3072":   "3072 bits",
		"RSA4096":   "4096 bits",
		"ECDSAP256": "P-256",
		"ECDSAP384": "P-384",
		"ECDSAP521": "P-521",
		"ED25519":   "Ed25519",
	} {
		t.Run(kind, func(t *testing.T) {
			s := newSigner(t)
			if _, _, _, err := s.get(kind); !waits(err) {
				t.Fatalf("before an answer: %v", err)
			}
			r := s.last()
			if r.Namespace != "ns" || !strings.HasPrefix(r.Name, "req-web-") || len(r.OwnerReferences) != 1 ||
				r.OwnerReferences[0].UID != "u1" || r.OwnerReferences[0].Kind != "Pod" {
				t.Errorf("request %+v", r.ObjectMeta)
			}
			spec := r.Spec
			csr, err := x509.ParseCertificateRequest(spec.StubPKCS10Request)
			if err != nil || csr.CheckSignature() != nil || len(csr.Extensions) > 0 || csr.Subject.String() != "" {
				t.Errorf("stub %+v, %v", csr, err)
			}
			if spec.SignerName != "example.com/s" || spec.PodName != "web" || spec.PodUID != "u1" ||
				spec.ServiceAccountName != "robot" || spec.ServiceAccountUID != "uid-of-robot" ||
				spec.NodeName != "n1" || spec.NodeUID != "node-uid" || *spec.MaxExpirationSeconds != 7200 ||
				!maps.Equal(spec.UnverifiedUserAnnotations, map[string]string{"example.com/a": "b"}) {
				t.Errorf("request %+v", spec)
			}
			s.issue()
			key, chain, _ := s.must(kind)
			block, _ := pem.Decode(key)
			private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil || block.Type != "PRIVATE KEY" {
				t.Fatalf("key %s: %v", block.Type, err)
			}
			got := "Ed25519"
			switch k := private.(type) {
			case *ecdsa.PrivateKey:
				got = k.Curve.Params().Name
			case interface{ Size() int }:
				got = fmt.Sprintf("%d bits", k.Size()*8)
			}
			if got != want {
				t.Errorf("a key of %s, want %s", got, want)
			}
			if !bytes.HasPrefix(chain, []byte("-----BEGIN CERTIFICATE-----\nM")) {
				t.Errorf("chain %q", chain)
			}
		})
	}
	if _, _, _, err := newSigner(t).get("DSA"); err == nil || waits(err) {
		t.Errorf("an unknown type of key: %v", err)
	}
}

// A certificate is replaced at the time that the signer sets. Until the next one is issued, the old one is served.
func TestPodCertificateRefresh(t *testing.T) {
	parity.ProvesPart(t, 6, "VOL-49")
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		if _, _, _, err := s.get("ED25519"); !waits(err) {
			t.Fatal(err)
		}
		s.issue()
		if len(s.reported) != 1 || s.reported[0] != "u1/creds" {
			t.Errorf("reported %v", s.reported)
		}
		began := time.Now()
		first, _, renewAt := s.must("ED25519")
		if d := renewAt.Sub(began); d < 12*time.Hour || d >= 12*time.Hour+5*time.Minute {
			t.Errorf("renewed after %v", d)
		}
		time.Sleep(time.Until(renewAt) - time.Second)
		if again, _, at := s.must("ED25519"); !bytes.Equal(again, first) || !at.Equal(renewAt) || s.count() != 1 {
			t.Errorf("changed before its time; %d requests", s.count())
		}
		time.Sleep(time.Second)
		if old, _, at := s.must("ED25519"); !bytes.Equal(old, first) || s.count() != 2 ||
			time.Until(at) != time.Minute {
			t.Errorf("%d requests; the next look is in %v", s.count(), time.Until(at))
		}
		s.issue()
		next, _, _ := s.must("ED25519")
		if bytes.Equal(next, first) || s.count() != 2 || len(s.reported) != 2 {
			t.Errorf("the key is the same; %d requests, reported %v", s.count(), s.reported)
		}
		if events := s.events.Texts(); len(events) > 0 || s.looks > 0 {
			t.Errorf("events %v, %d looks", events, s.looks)
		}
		s.certificates.Forget("u1")
		if len(s.certificates.all) > 0 {
			t.Error("keys of a pod that is gone are kept")
		}
	})
}

// The jitter of replacements is small for certificates with a short lifetime.
func TestPodCertificateShortLifetime(t *testing.T) {
	for range 50 {
		s := newSigner(t)
		s.life = 10 * time.Minute
		_, _, _, _ = s.get("ED25519")
		s.issue()
		if _, _, at := s.must("ED25519"); time.Until(at) > 8*time.Minute {
			t.Fatalf("replaced in %v, and dead in 10 minutes", time.Until(at))
		}
	}
}

func TestPodCertificateDenied(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(s *signer)
		err   string
		event string // %s is the request's name
		state string
	}{
		{"denied", func(s *signer) { s.refuse("Denied", "UnsupportedKeyType", "use RSA3072") },
			`PodCertificateRequest was permanently denied: reason="UnsupportedKeyType" message="use RSA3072"`,
			`Denied PodCertificateRequest %s was denied, reason="UnsupportedKeyType", message="use RSA3072"`, "denied"},
		{"failed", func(s *signer) { s.refuse("Failed", "Broken", "no luck") },
			`PodCertificateRequest was permanently failed: reason="Broken" message="no luck"`,
			`Failed PodCertificateRequest %s failed, reason="Broken", message="no luck"`, "failed"},
		{"a certificate for another key", func(s *signer) { s.issueFor(s.key.Public()) },
			"signer example.com/s issued an invalid certificate: tls: private key",
			"Failed signer example.com/s issued an invalid certificate: tls: private key", "failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t)
				_, _, _, _ = s.get("ECDSAP256")
				tc.do(s)
				for range 3 {
					if _, _, _, err := s.get("ECDSAP256"); err == nil || waits(err) ||
						!strings.HasPrefix(err.Error(), tc.err) {
						t.Errorf("%v, want %s", err, tc.err)
					}
					time.Sleep(time.Hour)
				}
				if events := s.events.Texts(); s.count() != 1 || len(events) != 1 ||
					!strings.HasPrefix(events[0], "Warning "+
						strings.ReplaceAll(tc.event, "%s", s.last().Namespace+"/"+s.last().Name)) {
					t.Errorf("%d requests, events %q", s.count(), events)
				}
				want := `kubelet_podcertificate_states{signer_name=example.com/s,state=` + tc.state + `}`
				if got := scrape.Of(t, s.certificates); got[want] != 1 || len(got) != 1 {
					t.Errorf("metrics %v, want %s", got, want)
				}
				s.certificates.Forget("u1")
				if _, _, _, err := s.get("ECDSAP256"); !waits(err) {
					t.Errorf("the next pod: %v", err)
				}
			})
		})
	}
}

func TestPodCertificateMissedAnswer(t *testing.T) {
	parity.ProvesPart(t, 6, "VOL-49")
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.silent = true
		_, _, _, _ = s.get("ED25519")
		s.issue()
		time.Sleep(time.Minute - time.Second)
		if _, _, _, err := s.get("ED25519"); !waits(err) || s.looks > 0 {
			t.Errorf("%v after %d looks", err, s.looks)
		}
		time.Sleep(time.Second)
		s.must("ED25519")
	})
	synctest.Test(t, func(t *testing.T) { // the request is deleted without an answer
		s := newSigner(t)
		_, _, _, _ = s.get("ED25519")
		s.gone = true
		time.Sleep(time.Minute)
		_, _, _, _ = s.get("ED25519")
		s.gone = false
		if _, _, _, err := s.get("ED25519"); !waits(err) || s.count() != 2 {
			t.Errorf("%v, %d requests", err, s.count())
		}
		s.certificates.Seen(s.last(), true)
		if _, _, _, err := s.get("ED25519"); !waits(err) || s.count() != 3 || len(s.reported) != 1 {
			t.Errorf("%v, %d requests, reported %v", err, s.count(), s.reported)
		}
		s.issue()
		s.must("ED25519")
	})
	s := newSigner(t) // the answer arrives before Request returns
	s.answered = true
	s.must("ED25519")
}

// If replacements cannot be requested, the pod keeps its certificate, and gets events.
func TestPodCertificateOverdue(t *testing.T) {
	parity.ProvesPart(t, 6, "VOL-49")
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		_, _, _, _ = s.get("ED25519")
		s.issue()
		key, _, at := s.must("ED25519")
		s.err = errors.New("away")
		states := map[string]time.Duration{}
		began := time.Now()
		for time.Since(began) < 25*time.Hour {
			time.Sleep(time.Until(at))
			var still []byte
			if still, _, at = s.must("ED25519"); !bytes.Equal(still, key) {
				t.Fatal("another key")
			}
			for series := range scrape.Of(t, s.certificates) {
				_, state, _ := strings.Cut(series, "state=")
				if _, seen := states[state]; !seen {
					states[state] = time.Since(began)
				}
			}
		}
		if events := s.events.Texts(); !slices.Equal(events, []string{
			"Warning CertificateOverdueForRefresh PodCertificate refresh overdue",
			"Warning CertificateExpired PodCertificate expired",
		}) {
			t.Errorf("events %q", events)
		}
		if d := states["overdue_for_refresh}"]; d < 12*time.Hour+10*time.Minute || d > 12*time.Hour+17*time.Minute {
			t.Errorf("overdue after %v", d)
		}
		if d := states["expired}"]; d < 24*time.Hour || d > 24*time.Hour+2*time.Minute {
			t.Errorf("expired after %v", d)
		}
		s.err = nil
		time.Sleep(time.Minute)
		s.must("ED25519")
		s.issue()
		if next, _, _ := s.must("ED25519"); bytes.Equal(next, key) {
			t.Error("it is not replaced when the signer is back")
		}
	})
}
