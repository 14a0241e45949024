package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson/test/kit/parity"
)

// shown returns the values of the metrics of a registry by name; for a histogram, the number of observations.
func shown(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		out[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
			float64(m.GetHistogram().GetSampleCount())
	}
	return out
}

// TestCertificateMetrics checks the time until each certificate expires, the lifetime of replaced serving certificates,
// and the number of failed requests.
func TestCertificateMetrics(t *testing.T) {
	parity.Proves(t, "SRV-51")
	for signer, names := range map[string]struct{ pair, left, failed, lived string }{
		ClientSigner: {ClientPair, "kubelet_certificate_manager_client_ttl_seconds",
			"kubelet_certificate_manager_client_expiration_renew_errors", ""},
		ServingSigner: {ServerPair, "kubelet_certificate_manager_server_ttl_seconds",
			"kubelet_server_expiration_renew_errors",
			"kubelet_certificate_manager_server_rotation_seconds"},
	} {
		t.Run(names.pair, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t, 10*time.Hour)
				store, err := NewStore(StoreConfig{Dir: dir, Pair: names.pair, Log: logTo(t)})
				if err != nil {
					t.Fatal(err)
				}
				reg := prometheus.NewRegistry()
				m := NewMetrics(reg)
				cfg := Config{
					Signer:   signer,
					Store:    store,
					Log:      logTo(t),
					Template: func() *x509.CertificateRequest { return ClientTemplate("n1") },
					Requests: func(*tls.Certificate) Requests { return a.requests() },
				}
				m.Watch(&cfg)
				r, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				m.Show(r)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				defer func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				if got := shown(t, reg); !math.IsInf(got[names.left], 1) || got[names.failed] != 0 {
					t.Errorf("before there is one: %v", got)
				}
				a.answer(a.pending(), true)
				for len(a.list()) < 2 {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if got := shown(t, reg); got[names.failed] != 1 {
					t.Errorf("after a refusal: %v", got)
				}
				a.answer(a.pending(), false)
				synctest.Wait()
				time.Sleep(time.Hour)
				if got := shown(t, reg); got[names.left] > 9*3600 || got[names.left] < 9*3600-60 ||
					names.lived != "" && got[names.lived] != 0 {
					t.Errorf("an hour after it was issued for ten: %v", got)
				}
				for len(a.list()) < 3 {
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				a.answer(a.pending(), false)
				synctest.Wait()
				got := shown(t, reg)
				if got[names.left] < 9.9*3600 || names.lived != "" && got[names.lived] != 1 || got[names.failed] != 1 {
					t.Errorf("after it was renewed: %v", got)
				}
				want := 2
				if names.lived != "" {
					want = 3
				}
				if len(got) != want {
					t.Errorf("shown: %v", got)
				}
			})
		})
	}
}
