package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"keelson/test/kit/parity"
)

// started is a running rotator.
type started struct {
	*Rotator
	end      func() error // stops Run and returns its error
	changes  int
	failures int
	lived    []time.Duration
	asked    []*tls.Certificate // certificate that each request was made with
}

func start(t *testing.T, a *authority, cfg Config) *started {
	t.Helper()
	s := &started{}
	cfg.Log = logTo(t)
	if cfg.Signer == "" {
		cfg.Signer = ClientSigner
		cfg.Template = func() *x509.CertificateRequest { return ClientTemplate("n1") }
	}
	if cfg.Requests == nil {
		api := a.requests()
		cfg.Requests = func(c *tls.Certificate) Requests { s.asked = append(s.asked, c); return api }
	}
	cfg.OnChange = func() { s.changes++ }
	cfg.OnRotated = func(d time.Duration) { s.lived = append(s.lived, d) }
	cfg.OnFailure = func() { s.failures++ }
	var err error
	if s.Rotator, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.end = func() error { cancel(); return <-done }
	synctest.Wait()
	return s
}

func TestRotation(t *testing.T) {
	parity.ProvesPart(t, 4, "CFG-130")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 10*time.Hour)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, a, Config{Store: store})
		if s.Current() != nil {
			t.Error("a certificate before one was issued")
		}
		waiting := make(chan *tls.Certificate, 1)
		go func() {
			c, err := s.Valid(t.Context())
			if err != nil {
				t.Error(err)
			}
			waiting <- c
		}()
		first := a.pending()
		if first.Spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" ||
			fmt.Sprint(first.Spec.Usages) != "[digital signature client auth]" ||
			!strings.HasPrefix(first.Name, "csr-") {
			t.Errorf("request %s: %s %v", first.Name, first.Spec.SignerName, first.Spec.Usages)
		}
		if r := parseRequest(t, first); r.Subject.String() != "CN=system:node:n1,O=system:nodes" ||
			r.PublicKeyAlgorithm != x509.ECDSA {
			t.Errorf("asks for %s, %s", r.Subject, r.PublicKeyAlgorithm)
		}
		time.Sleep(5 * time.Minute)
		a.answer(first, false)
		synctest.Wait()
		if c := <-waiting; c == nil || c != s.Current() || s.asked[0] != nil || s.changes != 1 {
			t.Errorf("after the answer: %v, asked with %v, %d changes", s.Current(), s.asked[0], s.changes)
		}
		// It is renewed after 70 to 90 percent of its lifetime, and the request is made with it.
		issued, old := time.Now(), s.Current()
		for len(a.list()) < 2 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if time.Since(issued) > 10*time.Hour {
				t.Fatal("not renewed")
			}
		}
		if at := time.Since(issued).Hours() / 10; at < 0.7 || at > 0.91 {
			t.Errorf("renewed after %.2f of its life", at)
		}
		if s.asked[1] != old {
			t.Error("not asked with the certificate in force")
		}
		a.answer(a.pending(), false)
		synctest.Wait()
		if s.Current() == old || s.changes != 2 || len(s.lived) != 1 || s.lived[0] < 7*time.Hour ||
			s.lived[0] > 9*time.Hour+2*time.Minute {
			t.Errorf("rotated: %d changes, lived %v", s.changes, s.lived)
		}
		stored, err := store.Current()
		if err != nil || !stored.Leaf.Equal(s.Current().Leaf) {
			t.Errorf("stored %v, %v", stored, err)
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestExpiredCertificates(t *testing.T) {
	for _, tc := range []struct {
		name  string
		life  time.Duration
		after time.Duration
		node  string
		asks  bool
		with  bool // the request is made with the existing certificate
	}{
		{name: "a young one is kept", life: 10 * time.Hour, after: time.Hour, node: "n1"},
		{
			name:  "an old one is renewed at once, with itself",
			life:  10 * time.Hour,
			after: 9*time.Hour + time.Minute,
			node:  "n1",
			asks:  true,
			with:  true,
		},
		{
			name:  "one that expired while the agent was down is none",
			life:  time.Hour,
			after: 2 * time.Hour,
			node:  "n1",
			asks:  true,
		},
		{
			name:  "one of another node is renewed at once",
			life:  10 * time.Hour,
			after: time.Hour,
			node:  "n0",
			asks:  true,
			with:  true,
		},
	} {
		dir := t.TempDir()
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t, tc.life)
				store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
				if err != nil {
					t.Fatal(err)
				}
				a.issue(store, ClientTemplate(tc.node))
				time.Sleep(tc.after)
				s := start(t, a, Config{Store: store})
				if got := len(a.list()) == 1; got != tc.asks {
					t.Errorf("asks %v, want %v", got, tc.asks)
				}
				if tc.asks && (s.asked[0] != nil) != tc.with {
					t.Errorf("asks with %v", s.asked[0])
				}
				if err := s.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A certificate has not expired, but the API server rejects it, because it no longer trusts the CA. Another one is
// requested once, as on a node without a certificate.
func TestRejectedCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 10*time.Hour)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		must(t, err)
		a.issue(store, ClientTemplate("n1"))
		file := store.currentFile()
		time.Sleep(time.Hour)
		var reported []string
		s := start(t, a, Config{Store: store, OnRejected: func(err error) { reported = append(reported, err.Error()) }})
		old := s.Current()
		s.Refused(&tls.Certificate{}) // not the current one
		synctest.Wait()
		if len(a.list()) != 0 || len(reported) != 0 {
			t.Errorf("asked %d times, reported %q", len(a.list()), reported)
		}
		for range 3 {
			s.Refused(old)
		}
		synctest.Wait()
		if n := len(a.list()); n != 1 || s.asked[0] != nil || s.Current() != old {
			t.Fatalf("asked %d times, with %v", n, s.asked)
		}
		a.answer(a.pending(), false)
		synctest.Wait()
		if s.Current() == old || exists(file) || !exists(file+".bad") {
			t.Error("the old one is in force, or lost")
		}
		if len(reported) != 1 ||
			reported[0] != "use "+file+": the API server does not accept the certificate; it is kept as "+file+".bad" {
			t.Errorf("reported %q", reported)
		}
		s.Refused(s.Current())
		synctest.Wait()
		if n := len(a.list()); n != 1 || len(reported) != 1 {
			t.Errorf("asked %d times, reported %q", n, reported)
		}
		must(t, s.end())
		// Without other credentials no request is made.
		s = start(t, a, Config{Store: store})
		s.Refused(s.Current())
		synctest.Wait()
		if n := len(a.list()); n != 1 {
			t.Errorf("asked %d times without a way", n)
		}
		must(t, s.end())
	})
}

// TestRejectedKubeconfigCertificate: the certificate of the kubeconfig has no file in the store. Once another one is
// issued, that one is the current one, also for the next agent.
func TestRejectedKubeconfigCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 10*time.Hour)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		must(t, err)
		brought, err := tls.X509KeyPair(a.pair(ClientTemplate("n1")))
		must(t, err)
		var reported []string
		s := start(t, a, Config{
			Store:      store,
			First:      &brought,
			OnRejected: func(err error) { reported = append(reported, err.Error()) },
		})
		s.Refused(&brought)
		synctest.Wait()
		a.answer(a.pending(), false)
		synctest.Wait()
		if s.Current() == &brought || s.Current() == nil {
			t.Errorf("in force is %v", s.Current())
		}
		if len(reported) != 1 ||
			reported[0] != "use the kubeconfig: the API server does not accept the certificate; "+
				"the node has another one by now" {
			t.Errorf("reported %q", reported)
		}
		must(t, s.end())
		store, err = NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		must(t, err)
		if kept, err := store.Current(); err != nil || !kept.Leaf.Equal(s.Current().Leaf) {
			t.Errorf("the next agent finds %v, %v", kept, err)
		}
	})
}

// TestRotationAfterClockChange: timers do not account for a clock that is set ahead or a machine that was suspended.
func TestRotationAfterClockChange(t *testing.T) {
	for _, tc := range []struct {
		name string
		by   time.Duration
		with bool // the request is made with the current certificate
	}{
		{"near the end of the certificate's life", 9 * time.Hour, true},
		{"beyond it", 11 * time.Hour, false},
	} {
		dir := t.TempDir()
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t, 10*time.Hour)
				store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
				must(t, err)
				a.issue(store, ClientTemplate("n1"))
				var set atomic.Int64
				s := start(t, a, Config{
					Store:  store,
					GiveUp: 5 * time.Minute,
					Now:    func() time.Time { return time.Now().Add(time.Duration(set.Load())) },
				})
				time.Sleep(10 * time.Minute)
				if n := len(a.list()); n != 0 {
					t.Fatalf("asked %d times for another than a young one", n)
				}
				set.Store(int64(tc.by))
				time.Sleep(clockCheckPeriod)
				synctest.Wait()
				if n := len(a.list()); n != 1 || (s.asked[0] != nil) != tc.with {
					t.Errorf("asked %d times, with %v", n, s.asked)
				}
				must(t, s.end())
			})
		})
	}
}

// TestCertificateWithoutExpiry: a certificate without expiry is valid until the year 9999. The rotator must not poll
// the clock for it.
func TestCertificateWithoutExpiry(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, math.MaxInt64)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		must(t, err)
		a.issue(store, ClientTemplate("n1"))
		var looks atomic.Int64
		s := start(t, a, Config{
			Store:  store,
			GiveUp: 5 * time.Minute,
			Now:    func() time.Time { looks.Add(1); return time.Now() },
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(a.list()); n != 0 || looks.Load() > 1000 {
			t.Errorf("asked %d times, and looked at the clock %d times in an hour", n, looks.Load())
		}
		must(t, s.end())
	})
}

// TestTriggerKeepsRenewalTime: the time of a renewal is selected at random once per certificate. The status of the
// node triggers the rotator every few minutes. If each trigger selected a new time, nodes that joined together would
// all renew at the first possible moment.
func TestTriggerKeepsRenewalTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 10*time.Hour)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ServerPair, Log: logTo(t)})
		must(t, err)
		want := ServingTemplate("n1", []Address{{"InternalIP", "10.0.0.1"}}, false)
		a.issue(store, want)
		issued := time.Now()
		s := start(t, a, Config{
			Store:    store,
			Signer:   ServingSigner,
			Template: func() *x509.CertificateRequest { return want },
		})
		at := due(s.Leaf(), s.chance)
		for time.Now().Before(at) {
			if n := len(a.list()); n != 0 {
				t.Fatalf("renewed %v after it was issued, want %v", time.Since(issued), at.Sub(issued))
			}
			s.Trigger()
			time.Sleep(min(30*time.Second, time.Until(at)))
			synctest.Wait()
		}
		if n := len(a.list()); n != 1 {
			t.Errorf("%d requests when it is due", n)
		}
		must(t, s.end())
	})
}

func TestDeniedAndDeletedRequests(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-135")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, time.Hour)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, a, Config{Store: store})
		// Each request is denied. The next one is made after a back-off from 2 s to 32 s.
		for i, want := range []time.Duration{2, 4, 8, 16, 32, 32} {
			want *= time.Second
			a.answer(a.pending(), true)
			denied := time.Now()
			for len(a.list()) == i+1 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			if took := time.Since(denied); took < want || took > want+want/10+200*time.Millisecond {
				t.Errorf("request %d comes %v after the one before was denied, want %v", i+2, took, want)
			}
		}
		if s.failures != 6 {
			t.Errorf("%d failures counted, want 6", s.failures)
		}
		// Without an answer, another request is made after 15 minutes.
		n, asked := len(a.list()), time.Now()
		for len(a.list()) == n {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if took := time.Since(asked); took < 15*time.Minute || took > 16*time.Minute {
			t.Errorf("asked again after %v", took)
		}
		for _, r := range a.list()[n:] {
			a.answer(r, false)
		}
		synctest.Wait()
		if s.Current() == nil {
			t.Error("no certificate after all")
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestServingCertificateOfNewAddresses(t *testing.T) {
	parity.Proves(t, "CFG-132")
	parity.ProvesPart(t, 2, "CFG-131")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 10*time.Hour)
		store, err := NewStore(StoreConfig{Dir: dir, Pair: ServerPair, Log: logTo(t)})
		if err != nil {
			t.Fatal(err)
		}
		var want *x509.CertificateRequest
		at := func(ips ...string) {
			list := []Address{{"Hostname", "n1"}}
			for _, ip := range ips {
				list = append(list, Address{"InternalIP", ip})
			}
			want = ServingTemplate("n1", list, false)
		}
		at()
		s := start(t, a, Config{
			Store:    store,
			Signer:   ServingSigner,
			Template: func() *x509.CertificateRequest { return want },
		})
		s.Trigger()
		synctest.Wait()
		if n := len(a.list()); n != 0 {
			t.Fatalf("%d requests without an address", n)
		}
		at("10.0.0.1")
		s.Trigger()
		synctest.Wait()
		r := a.pending()
		if r.Spec.SignerName != "kubernetes.io/kubelet-serving" ||
			fmt.Sprint(r.Spec.Usages) != "[digital signature server auth]" {
			t.Errorf("request: %s %v", r.Spec.SignerName, r.Spec.Usages)
		}
		// If the addresses change before the answer, it is not waited for, and another request is made.
		at("10.0.0.2", "fd00::2")
		s.Trigger()
		synctest.Wait()
		if n := len(a.list()); n != 2 {
			t.Fatalf("%d requests after the address changed, want 2", n)
		}
		for _, r := range a.list() {
			a.answer(r, false)
		}
		synctest.Wait()
		if leaf := s.Leaf(); leaf == nil || leaf.VerifyHostname("10.0.0.2") != nil ||
			leaf.VerifyHostname("fd00::2") != nil ||
			leaf.VerifyHostname("n1") != nil || leaf.VerifyHostname("10.0.0.1") == nil {
			t.Fatalf("certificate for %v %v", leaf.DNSNames, leaf.IPAddresses)
		}
		// A removed address causes no request, and an added one does.
		at("10.0.0.2")
		s.Trigger()
		synctest.Wait()
		if n := len(a.list()); n != 2 {
			t.Errorf("%d requests after an address went, want 2", n)
		}
		at("10.0.0.3")
		s.Trigger()
		synctest.Wait()
		a.answer(a.pending(), false)
		synctest.Wait()
		if err := s.Leaf().VerifyHostname("10.0.0.3"); err != nil {
			t.Error(err)
		}
		names, err := newestFirst(store)
		if err != nil || len(names) == 0 || !strings.HasPrefix(names[0], "kubelet-server-") {
			t.Errorf("files %v, %v", names, err)
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestGiveUpWithoutCertificate: Run ends after five minutes without a valid certificate, but only if the API server
// responds.
func TestGiveUpWithoutCertificate(t *testing.T) {
	parity.ProvesPart(t, 4, "CFG-130")
	for _, tc := range []struct {
		name string
		err  error
		ends bool
	}{
		{"the credentials are refused", apierrors.NewUnauthorized("no"), true},
		{"the API server is away", fmt.Errorf("connection refused"), false},
		{"a proxy answers for it", apierrors.NewGenericServerResponse(
			http.StatusBadGateway,
			"post",
			certificatesv1.Resource("x"),
			"",
			"bad gateway",
			0,
			true,
		), false},
	} {
		dir := t.TempDir()
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t, time.Hour)
				store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
				if err != nil {
					t.Fatal(err)
				}
				a.issue(store, ClientTemplate("n1"))
				s, err := New(Config{
					Store:    store,
					Signer:   ClientSigner,
					GiveUp:   5 * time.Minute,
					Log:      logTo(t),
					Template: func() *x509.CertificateRequest { return ClientTemplate("n1") },
					Requests: func(*tls.Certificate) Requests { return refusing{tc.err} },
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				begin := time.Now()
				err = s.Run(ctx)
				took := time.Since(begin)
				if tc.ends && (err == nil || took < 65*time.Minute || took > 66*time.Minute ||
					!strings.Contains(err.Error(), "valid client certificate")) {
					t.Errorf("ended after %v with %v", took, err)
				}
				if !tc.ends && (err != nil || took < 3*time.Hour) {
					t.Errorf("ended after %v with %v, although no API server answered", took, err)
				}
			})
		})
	}
}

type refusing struct{ err error }

func (r refusing) Get(context.Context, string, string) (*certificatesv1.CertificateSigningRequest, error) {
	return nil, r.err
}

func (r refusing) Create(
	context.Context, string, *certificatesv1.CertificateSigningRequest,
) (*certificatesv1.CertificateSigningRequest, error) {
	return nil, r.err
}

func (r refusing) ListWatch(string, fields.Selector) *cache.ListWatch { return nil }

func TestDueBetween70And90Percent(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for chance, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 80 * time.Hour, 1: 90 * time.Hour} {
		if got := due(leaf, chance).Sub(begin).Round(time.Second); got != want {
			t.Errorf("chance %v: %v, want %v", chance, got, want)
		}
	}
}

func TestServingTemplate(t *testing.T) {
	for _, tc := range []struct {
		name       string
		addresses  []Address
		namesAlone bool
		names, ips []string
		none       bool
	}{
		{name: "nothing is known", none: true},
		{name: "a name alone", addresses: []Address{{"Hostname", "n1"}}, none: true},
		{
			name:       "a name alone, where that is good enough",
			addresses:  []Address{{"Hostname", "n1"}},
			namesAlone: true,
			names:      []string{"n1"},
		},
		{
			name: "everything, in order",
			addresses: []Address{
				{"InternalIP", "10.0.0.2"},
				{"ExternalIP", "1.2.3.4"},
				{"InternalIP", "fd00::1"},
				{"Hostname", "n1"},
				{"ExternalDNS", "n1.example"},
				{"InternalDNS", "n1.local"},
				{"Hostname", "n1"},
			},
			names: []string{"n1", "n1.example", "n1.local"},
			ips:   []string{"1.2.3.4", "10.0.0.2", "fd00::1"},
		},
		{name: "a name that is an address", addresses: []Address{{"Hostname", "10.0.0.2"}}, ips: []string{"10.0.0.2"}},
		{name: "an address that is none", addresses: []Address{{"InternalIP", "here"}}, none: true},
	} {
		got := ServingTemplate("n1", tc.addresses, tc.namesAlone)
		if tc.none != (got == nil) {
			t.Errorf("%s: %v", tc.name, got)
		}
		if got != nil && (!slices.Equal(got.DNSNames, tc.names) || !slices.Equal(texts(got.IPAddresses), tc.ips) ||
			got.Subject.CommonName != "system:node:n1") {
			t.Errorf("%s: %v %v %v", tc.name, got.Subject, got.DNSNames, got.IPAddresses)
		}
	}
}
