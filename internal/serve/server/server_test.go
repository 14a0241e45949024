package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/serve/server"
	"keelson/internal/serve/server/cert"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

func TestListenFailureEndsRun(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-01")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := server.New(server.Config{
		Listeners: server.Listeners{ReadOnlyAddress: l.Addr().String()},
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Run = %v, want an error naming %s", err, l.Addr())
	}
	if _, err := server.New(server.Config{
		Listeners: server.Listeners{Address: "127.0.0.1:0"},
		Log:       slog.New(slog.DiscardHandler),
	}); err == nil {
		t.Error("a secure port without authentication was accepted")
	}
}

func TestSecurePort(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-131")
	parity.Proves(t, "SRV-04")
	var issued *tls.Certificate
	r := newRig(t, func(p *parts) {
		p.server.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return issued, nil }
		p.server.TLS.MinVersion = tls.VersionTLS12
		p.server.TLS.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
		p.server.TLS.CurvePreferences = []tls.CurveID{tls.CurveP256}
	})
	dial := func(change func(*tls.Config)) (tls.ConnectionState, error) {
		cfg := &tls.Config{RootCAs: r.ca.pool}
		change(cfg)
		c, err := tls.Dial("tcp", r.addr[server.Secure], cfg)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer c.Close()
		return c.ConnectionState(), nil
	}
	plain := func(*tls.Config) {}
	if _, err := dial(plain); err == nil {
		t.Error("a handshake succeeded before there was a certificate")
	}
	serving := r.ca.issue(t, x509.ExtKeyUsageServerAuth, nodeName)
	issued = &serving
	if _, err := dial(func(c *tls.Config) {
		c.ServerName = "elsewhere.example"
		c.InsecureSkipVerify = true
	}); err != nil {
		t.Errorf("another name: %v", err)
	}
	if _, err := dial(func(c *tls.Config) {
		c.MaxVersion = tls.VersionTLS11
		c.MinVersion = tls.VersionTLS10
	}); err == nil {
		t.Error("TLS 1.1 was accepted below the configured minimum")
	}
	if st, err := dial(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }); err != nil ||
		st.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 {
		t.Errorf("suite %x, %v", st.CipherSuite, err)
	}
	if _, err := dial(func(c *tls.Config) {
		c.MaxVersion = tls.VersionTLS12
		c.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	}); err == nil {
		t.Error("a suite that is not configured was accepted")
	}
	if _, err := dial(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }); err == nil {
		t.Error("a curve that is not configured was accepted")
	}
	asked := false
	if _, err := dial(func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		}
	}); err != nil || !asked {
		t.Errorf("client certificate asked for: %v, handshake without one: %v", asked, err)
	}
}

func TestProtocolsAndLimits(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-01")
	r := newRig(t)
	if got := r.as("admin", "GET", "/healthz"); got.proto != "HTTP/2.0" {
		t.Errorf("spoke %s, want HTTP/2.0", got.proto)
	}
	url := "https://" + r.addr[server.Secure]
	if got := r.ask(r.http1(), "GET", url+"/healthz", "Authorization", "Bearer token-admin"); got.proto != "HTTP/1.1" ||
		got.code != 200 {
		t.Errorf("HTTP/1.1: %s %d", got.proto, got.code)
	}
	if got := r.ask(r.http1(), "GET", url+"/healthz", "Authorization", "Bearer token-admin", "X-Big",
		strings.Repeat("x", 1<<20+8192)); got.code != 431 {
		t.Errorf("headers above 1 MiB: %d, want 431", got.code)
	}
	if got := r.ask(r.http1(), "GET", url+"/healthz", "Authorization", "Bearer token-admin", "X-Big",
		strings.Repeat("x", 1<<19)); got.code != 200 {
		t.Errorf("headers of half a MiB: %d, want 200", got.code)
	}
	req, err := http.NewRequest("PUT", url+"/debug/flags/v", strings.NewReader(strings.Repeat("1", 2<<20)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-admin")
	resp, err := r.http1().Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("a body of 2 MiB: %d, want 400", resp.StatusCode)
		}
	}
}

func TestTimeouts(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-01")
	h := server.HTTPServer(t.Context(), slog.New(slog.DiscardHandler))
	if h.IdleTimeout != 90*time.Second || h.ReadTimeout != 4*time.Hour || h.WriteTimeout != 4*time.Hour ||
		h.MaxHeaderBytes != 1<<20 {
		t.Errorf("idle %v, read %v, write %v, header %d", h.IdleTimeout, h.ReadTimeout, h.WriteTimeout,
			h.MaxHeaderBytes)
	}
}

// Replaced files of certificates and CAs are used from the next handshake on.
func TestCertificatesReload(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	caA, caB := newAuthority(t), newAuthority(t)
	put := func(serving tls.Certificate, ca *authority) {
		t.Helper()
		key, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for name, block := range map[string]*pem.Block{
			"tls.crt": {Type: "CERTIFICATE", Bytes: serving.Certificate[0]},
			"tls.key": {Type: "PRIVATE KEY", Bytes: key},
			"ca.crt":  {Type: "CERTIFICATE", Bytes: ca.cert.Raw},
		} {
			if err := os.WriteFile(file(name+".new"), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file(name+".new"), file(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, second := caA.issue(t, x509.ExtKeyUsageServerAuth, "first"), caA.issue(t, x509.ExtKeyUsageServerAuth,
		"second")
	put(first, caA)
	pair, err := cert.NewPair(file("tls.crt"), file("tls.key"), true, log)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := cert.NewPool(file("ca.crt"), true, log)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(p *parts) {
		p.server.TLS.GetCertificate, p.server.TLS.ClientCAs, p.authn.ClientCAs = pair.GetCertificate, pool.ClientCAs,
			pool.ClientCAs
	})
	r.ca = caA // which signed the server's certificates here
	get := func(ca *authority) (subject string, code int) {
		c := r.client(ca.issue(t, x509.ExtKeyUsageClientAuth, "admin"))
		resp, err := c.Get("https://" + r.addr[server.Secure] + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.StatusCode
	}
	if s, code := get(caA); s != "first" || code != 200 {
		t.Fatalf("before: %s %d", s, code)
	}
	if _, code := get(caB); code != 401 {
		t.Fatalf("before, with a certificate of the other authority: %d", code)
	}
	put(second, caB)
	await.Until(t, "both files to be read anew", func() (string, bool) { // the files are checked once a second
		s, code := get(caB)
		return fmt.Sprint(s, " ", code), s == "second" && code == 200
	})
	if _, code := get(caA); code != 401 {
		t.Errorf("the old authority still counts: %d", code)
	}
}

func TestHealthPort(t *testing.T) {
	parity.ProvesPart(t, 3, "SRV-03")
	r := newRig(t, func(p *parts) {
		p.server.Checks = []server.Check{{Name: "syncloop", Check: func() error { return errors.New("stuck") }}}
	})
	base := "http://" + r.addr[server.Healthz]
	if got := r.ask(http.DefaultClient, "GET", base+"/healthz?verbose"); got.code != 200 ||
		got.text != "[+]ping ok\nhealthz check passed\n" {
		t.Errorf("%d %q", got.code, got.text)
	}
	if got := r.ask(http.DefaultClient, "GET", base+"/pods"); got.code != 404 {
		t.Errorf("/pods on the health port: %d", got.code)
	}
}

func TestHealthPortIsRetried(t *testing.T) {
	parity.ProvesPart(t, 3, "SRV-03")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	listening, failed := make(chan struct{}), make(logged, 16)
	s, err := server.New(server.Config{
		Listeners: server.Listeners{
			HealthzAddress: addr,
			OnListen:       func(server.Port, net.Addr) { close(listening) },
		},
		Log: slog.New(slog.NewTextHandler(failed, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if *s.HealthzRetry() != 5*time.Second {
		t.Errorf("tries again after %v, want 5s", *s.HealthzRetry())
	}
	*s.HealthzRetry() = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for range 3 { // it must not give up
		select {
		case err := <-done:
			t.Fatalf("Run ended: %v", err)
		case <-failed:
		}
	}
	l.Close()
	<-listening
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// logged is notified of each log line.
type logged chan struct{}

func (l logged) Write(b []byte) (int, error) {
	select {
	case l <- struct{}{}:
	default:
	}
	return len(b), nil
}

func TestHealthz(t *testing.T) {
	parity.Proves(t, "SRV-14")
	parity.ProvesPart(t, 6, "SRV-13")
	broken := false
	r := newRig(t, func(p *parts) {
		p.server.Checks = []server.Check{
			{Name: "log", Check: func() error { return nil }},
			{
				Name: "syncloop",
				Check: func() error {
					if broken {
						return errors.New("not seen for 6m0s")
					}
					return nil
				},
			},
			{Name: "device-plugin", Check: func() error { return nil }},
		}
	})
	expect := func(path string, code int, text string) {
		t.Helper()
		if got := r.as("admin", "GET", path); got.code != code || got.text != text {
			t.Errorf("%s: %d %q, want %d %q", path, got.code, got.text, code, text)
		}
	}
	expect("/healthz", 200, "ok")
	for _, name := range []string{"ping", "log", "syncloop", "device-plugin"} {
		expect("/healthz/"+name, 200, "ok")
	}
	expect("/healthz/nothing", 404, "404 page not found\n")
	expect("/healthz?verbose", 200,
		"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n")
	broken = true
	expect("/healthz", 500,
		"[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n[+]device-plugin ok\nhealthz check failed\n")
	expect("/healthz/syncloop", 500, "internal server error: not seen for 6m0s\n")
	expect("/healthz?verbose&exclude=syncloop&exclude=b&exclude=a", 200,
		"[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\n[+]device-plugin ok\nwarn: some health checks cannot be "+
			"excluded: no matches for \"a\",\"b\"\nhealthz check passed\n")
	slis := r.as("admin", "GET", "/metrics/slis").text
	for _, line := range []string{
		`kubernetes_healthcheck{name="syncloop",type="healthz"} 0`,
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 2`,
	} {
		if !strings.Contains(slis, line) {
			t.Errorf("/metrics/slis lacks %s", line)
		}
	}
}

func TestPodLists(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-15")
	parity.ProvesPart(t, 2, "SRV-26")
	second := webPod()
	second.Name = "two"
	r := newRig(t, func(p *parts) { p.server.Pods = fakePods{webPod(), second} })
	got := r.as("may-pods", "GET", "/pods")
	var list v1.PodList
	if err := json.Unmarshal([]byte(got.text), &list); err != nil {
		t.Fatalf("%v: %s", err, got.text)
	}
	if got.header.Get("Content-Type") != "application/json" || list.Kind != "PodList" || list.APIVersion != "v1" ||
		len(list.Items) != 2 ||
		list.Items[1].Name != "two" || list.Items[0].Annotations["kubernetes.io/config.source"] != "file" ||
		list.Items[0].Status.Phase != v1.PodRunning || list.Items[0].Kind != "" {
		t.Errorf("%s", got.text)
	}
	got = r.as("may-pods", "GET", "/runningpods/")
	if got.text != `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}`+"\n" {
		t.Errorf("no running pods: %s", got.text)
	}
}

func TestDebugEndpoints(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-28")
	parity.ProvesPart(t, 3, "SRV-29")
	r := newRig(t)
	if got := r.as("may-configz", "GET", "/configz"); got.header.Get("Content-Type") != "application/json" ||
		got.text != `{"kubeletconfig":{"kind":"KubeletConfiguration"}}`+"\n" {
		t.Errorf("/configz: %q", got.text)
	}
	for _, p := range []string{
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline",
		"/debug/pprof/symbol",
		"/debug/pprof/trace?seconds=0.01", "/debug/pprof/profile?seconds=1",
	} {
		if got := r.as("may-proxy", "GET", p); got.code != 200 || got.text == "" {
			t.Errorf("%s: %d", p, got.code)
		}
	}
	if got := r.as("may-proxy", "POST", "/debug/pprof/symbol"); got.code != 405 {
		t.Errorf("POST /debug/pprof/symbol: %d, want 405", got.code)
	}
	req, err := http.NewRequest("PUT", "https://"+r.addr[server.Secure]+"/debug/flags/v", strings.NewReader("4"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-admin")
	resp, err := r.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "verbosity is 4" {
		t.Errorf("/debug/flags/v: %q, %v", b, err)
	}
	if got := r.as("admin", "GET", "/debug/flags/v"); got.code != 406 {
		t.Errorf("GET /debug/flags/v: %d", got.code)
	}
}

func TestHTTPMetrics(t *testing.T) {
	parity.Proves(t, "SRV-34")
	r := newRig(t)
	r.as("admin", "GET", "/healthz/ping")
	r.as("admin", "GET", "/metrics/cadvisor")
	r.as("admin", "GET", "/metricsfoo/bar")
	r.as("admin", "POST", "/exec/default/web/main")
	r.as("none", "GET", "/pods")
	r.as("admin", "BREW", "/tea")
	r.ask(http.DefaultClient, "GET", "http://"+r.addr[server.ReadOnly]+"/pods")
	text := r.as("admin", "GET", "/metrics").text
	for _, want := range []string{
		`kubelet_http_requests_total{long_running="false",method="GET",path="healthz",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="metrics/cadvisor",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="true",method="POST",path="exec",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="other",path="other",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readonly"} 1`,
		`kubelet_http_requests_duration_seconds_count{long_running="false",method="GET",path="healthz",` +
			`server_type="readwrite"} 1`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="metrics",server_type="readwrite"} 1`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="healthz",server_type="readwrite"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Scrapers that prefer OpenMetrics get the text format, so that counters have upstream's names.
func TestMetricsFormats(t *testing.T) {
	parity.Proves(t, "SRV-17")
	const (
		text     = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
		binary   = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
		open     = "application/openmetrics-text;version=1.0.0"
		protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	)
	r := newRig(t)
	for _, path := range []string{
		"/metrics",
		"/metrics/cadvisor",
		"/metrics/resource",
		"/metrics/probes",
		"/metrics/slis",
	} {
		for accept, want := range map[string]string{
			"":                                 text,
			"*/*":                              text,
			open:                               text,
			open + ",text/plain;version=0.0.4": text,
			protobuf:                           binary + "; escaping=underscores",
			protobuf + "," + open:              binary + "; escaping=underscores",
		} {
			got := r.ask(r.client(), "GET", "https://"+r.addr[server.Secure]+path,
				"Authorization", "Bearer token-may-metrics", "Accept", accept)
			if got.code != 200 || got.header.Get("Content-Type") != want {
				t.Errorf("%s for %q: %d %s", path, accept, got.code, got.header.Get("Content-Type"))
			}
			if want == text && got.text != "" && !strings.HasPrefix(got.text, "# HELP ") ||
				strings.Contains(got.text, "# EOF") {
				t.Errorf("%s for %q:\n%s", path, accept, got.text)
			}
		}
	}
}

func TestContainerLogs(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-25")
	parity.ProvesPart(t, 4, "SRV-24")
	r := newRig(t)
	for _, c := range []struct {
		path string
		code int
		text string
	}{
		{"default/web/main", 200, "web/main id-main out\nid-main err\n"},
		{"default/web/main?tailLines=3&timestamps=true&sinceSeconds=5&limitBytes=1", 200,
			`web/main id-main out {"sinceSeconds":5,"timestamps":true,"tailLines":3,"limitBytes":1}` +
				"\nid-main err\n"},
		{"default/web/main?tail=all", 200, "web/main id-main out\nid-main err\n"},
		{"default/web/main?tailLines=some", 400, `{"message": "Unable to decode query."}`},
		{"default/web/main?sinceTime=yesterday", 400, `{"message": "Unable to decode query."}`},
		{"default/web/main?tailLines=-1", 422, `{"message": "Invalid request."}`},
		{"default/web/main?tail=-1", 422, `{"message": "Invalid request."}`},
		{"default/web/main?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, `{"message": "Invalid request."}`},
		{"default/web/main?stream=All", 200, "web/main id-main out\nid-main err\n"}, // as a newer API server asks
		{"default/web/main?stream=Stdout", 400,
			`unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in kubelet`},
		{"default/other/main?stream=Stderr", 404, `pod "other" does not exist`},
		{"default/web/main?stream=stdout", 422, `{"message": "Invalid request."}`},
		{"default/web/main?stream=Stdout&tailLines=1", 422, `{"message": "Invalid request."}`},
		{"default/web/main?limitBytes=0", 422, `{"message": "Invalid request."}`},
		{"default/web/main?sinceSeconds=0", 422, `{"message": "Invalid request."}`},
		{"default/other/main", 404, `pod "other" does not exist`},
		{"default/web/other", 404, `container "other" not found in pod "web"`},
		{"default/web/new", 400, `container "new" in pod "web" is waiting to start: ContainerCreating`},
		{"default/web/main?previous=true", 400, `previous terminated container "main" in pod "web" not found`},
		{"default/web/broken", 400, "log file is gone"},
	} {
		if got := r.as("may-proxy", "GET", "/containerLogs/"+c.path); got.code != c.code || got.text != c.text {
			t.Errorf("%s: %d %q, want %d %q", c.path, got.code, got.text, c.code, c.text)
		}
	}
}

func TestSplitLogStreams(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-25")
	r := newRig(t, func(p *parts) { p.server.SplitLogStreams = true })
	for stream, want := range map[string]string{
		"Stdout": "web/main id-main out\n",
		"Stderr": "id-main err\n",
		"All":    "web/main id-main out\nid-main err\n",
	} {
		if got := r.as("may-proxy", "GET", "/containerLogs/default/web/main?stream="+stream); got.text != want {
			t.Errorf("%s: %q", stream, got.text)
		}
	}
}

// A follower gets each line at once. When it disconnects, reading ends.
func TestFollowLogs(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-25")
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET",
		"https://"+r.addr[server.Secure]+"/containerLogs/default/web/main?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-admin")
	resp, err := r.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "web/main id-main out\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	<-r.logs.left
}

// /logs/ only serves files below its directory. Symlinks and paths that lead out of it are not followed.
func TestSystemLogs(t *testing.T) {
	parity.Differs(t, "SRV-27", "0010")
	outside := t.TempDir()
	var dir string
	r := newRig(t, func(p *parts) { dir = p.server.SystemLogDir })
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "secret"), "secret")
	write(filepath.Join(dir, "syslog"), "lines\n")
	write(filepath.Join(dir, "pods/web/0.log"), "pod lines\n")
	link(filepath.Join(dir, "pods/web/0.log"), "absolute.log")
	link("pods/web", "relative")
	link(filepath.Join(outside, "secret"), "escape")
	link(outside, "escapedir")
	link("../"+filepath.Base(outside)+"/secret", "escape2")
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"syslog":         "lines\n",
		"pods/web/0.log": "pod lines\n",
		"absolute.log":   "pod lines\n",
		"relative/0.log": "pod lines\n",
	} {
		if got := r.as("may-log", "GET", "/logs/"+path); got.code != 200 || got.text != want {
			t.Errorf("%s: %d %q", path, got.code, got.text)
		}
	}
	if got := r.as("may-log", "GET", "/logs/"); got.code != 200 || !strings.Contains(got.text, "syslog") {
		t.Errorf("listing: %d %q", got.code, got.text)
	}
	for _, path := range []string{
		"escape", "escapedir/secret", "escapedir/", "escape2", "pipe", "..%2f..%2fetc/passwd",
		"%2e%2e/%2e%2e/etc/passwd",
		"../../etc/passwd", "nothing",
	} {
		if got := r.as("may-log", "GET", "/logs/"+path); got.code == 200 || strings.Contains(got.text, "secret\n") {
			t.Errorf("%s: %d %q", path, got.code, got.text)
		}
	}
}

// The summary has the same response for GET and POST: complete, or with CPU and memory only.
func TestSummary(t *testing.T) {
	parity.Proves(t, "SRV-16")
	r := newRig(t)
	for _, method := range []string{"GET", "POST"} {
		for query, whole := range map[string]bool{
			"":                           true,
			"?only_cpu_and_memory=false": true,
			"?only_cpu_and_memory=true":  false,
			"?only_cpu_and_memory=1":     true,
			"?only_cpu_and_memory=true&only_cpu_and_memory=true": true,
		} {
			got := r.as("may-stats", method, "/stats/summary"+query)
			if got.code != 200 || got.header.Get("Content-Type") != "application/json" ||
				!strings.Contains(got.text, `"nodeName"`) || strings.Contains(got.text, `"rlimit"`) != whole {
				t.Errorf("%s %s: %d %s", method, query, got.code, got.text)
			}
		}
	}
	const none = "Internal Error: parse form failed: invalid semicolon separator in query"
	if got := r.as("may-stats", "GET", "/stats/summary?only_cpu_and_memory=true;x"); got.code != 500 ||
		got.text != none {
		t.Errorf("a query that cannot be read: %d %q, want 500 %q", got.code, got.text, none)
	}
	form := strings.NewReader("only_cpu_and_memory=true")
	req, err := http.NewRequest("POST", "https://"+r.addr[server.Secure]+"/stats/summary", form)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-may-stats")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := r.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 ||
		strings.Contains(string(text), `"rlimit"`) {
		t.Errorf("a form: %d %s, %v", resp.StatusCode, text, err)
	}
	broken := newRig(t, func(p *parts) {
		p.server.Summary = func(context.Context, bool) (*statsapi.Summary, error) { return nil, errors.New("no stats") }
	})
	if got := broken.as("may-stats", "GET", "/stats/summary"); got.code != 500 ||
		got.text != "Internal Error: no stats" {
		t.Errorf("without stats: %d %q", got.code, got.text)
	}
}
