package config

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

// issuer signs certificates for clients and servers.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:   pkix.Name{CommonName: fmt.Sprintf("ca-%d", time.Now().UnixNano())},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (i *issuer) issue(t *testing.T, name string, groups ...string) (*tls.Certificate, []byte, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{
			CommonName:   name,
			Organization: groups,
		},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}, i.cert,
		key.Public(), i.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, keyPEM := pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	pair, err := tls.X509KeyPair(cert, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return &pair, cert, keyPEM
}

// replace writes a file and renames it over the old one, as an installer does.
func replace(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestWhoMayComeIn(t *testing.T) {
	parity.Proves(t, "CFG-31", "CFG-32", "CFG-134")
	parity.ProvesPart(t, 2, "CFG-29")
	parity.ProvesPart(t, 2, "CFG-30")
	parity.ProvesPart(t, 3, "CFG-33")
	ours, theirs := newIssuer(t), newIssuer(t)
	mine, _, _ := ours.issue(t, "bob")
	foreign, _, _ := theirs.issue(t, "eve")
	file := t.TempDir() + "/ca.crt"
	replace(t, file, ours.pem)
	type asks struct {
		name, token string
		cert        *tls.Certificate
		want        int
	}
	for _, tc := range []struct {
		name, config string
		asks         []asks
	}{
		{
			"the defaults",
			"",
			[]asks{
				{"anonymous", "", nil, 401},
				{"a good token", "good", nil, 200},
				{"a token without rights", "poor", nil, 403},
				{"a bad token", "bad", nil, 401},
				{"a certificate", "", mine, 401},
			},
		},
		{
			"client certificates",
			"authentication: {x509: {clientCAFile: " + file + "}}\n",
			[]asks{{"a certificate", "", mine, 200}, {"a foreign certificate", "", foreign, 401}, {"a token", "good", nil, 200}},
		},
		{
			"anonymous requests",
			"authentication: {anonymous: {enabled: true}}\n",
			[]asks{{"anonymous", "", nil, 200}, {"a bad token", "bad", nil, 401}},
		},
		{"no tokens", "authentication: {webhook: {enabled: false}, x509: {clientCAFile: " + file + "}}\n", []asks{{"a token", "good", nil, 401}, {"a certificate", "", mine, 200}}},
		{
			"everything is allowed",
			"authorization: {mode: AlwaysAllow}\n",
			[]asks{{"a token without rights", "poor", nil, 200}, {"anonymous", "", nil, 401}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := script.Listening(t, tc.config, script.Rights)
			for _, a := range tc.asks {
				if code, text := s.Ask(t, "/metrics", a.token, a.cert); code != a.want {
					t.Errorf("%s: %d %.200s, want %d", a.name, code, text, a.want)
				}
			}
		})
	}
	t.Run("an answer is remembered for cacheTTL", func(t *testing.T) {
		for ttl, reviews := range map[string]int{"10m": 1, "1ns": 3} {
			s := script.Listening(t, "authentication: {webhook: {cacheTTL: "+ttl+"}}\n", script.Rights)
			for range 3 {
				if code, text := s.Ask(t, "/metrics", "good", nil); code != 200 {
					t.Fatalf("%d %s", code, text)
				}
			}
			if n := len(s.Asked("create", "tokenreviews")); n != reviews {
				t.Errorf("cacheTTL %s: %d reviews of a token that came 3 times, want %d", ttl, n, reviews)
			}
		}
	})
	t.Run("rights are remembered, and that there are none", func(t *testing.T) {
		for config, reviews := range map[string][2]int{ // of an allowed and of a denied client, for 3 requests each
			"": {1, 1},
			"authorization: {webhook: {cacheAuthorizedTTL: 1ns}}\n":   {3, 1},
			"authorization: {webhook: {cacheUnauthorizedTTL: 1ns}}\n": {1, 3},
		} {
			s := script.Listening(t, config, script.Rights)
			for i, token := range []string{"good", "poor"} {
				before := len(s.Asked("create", "subjectaccessreviews"))
				for range 3 {
					if code, text := s.Ask(t, "/metrics", token, nil); code != []int{200, 403}[i] {
						t.Fatalf("%q: %d %s", config, code, text)
					}
				}
				if n := len(s.Asked("create", "subjectaccessreviews")) - before; n != reviews[i] {
					t.Errorf("%q: %d reviews for %s, want %d", config, n, token, reviews[i])
				}
			}
		}
	})
	t.Run("other authorities in the file count at once, with the gate off they do not", func(t *testing.T) {
		config := "authentication: {x509: {clientCAFile: " + file + "}}\n"
		gateOff := script.Listening(t, "featureGates: {ReloadKubeletClientCAFile: false}\n"+config, script.Rights)
		s := script.Listening(t, config, script.Rights)
		for _, s := range []*script.Served{gateOff, s} {
			if code, _ := s.Ask(t, "/metrics", "", foreign); code != 401 {
				t.Errorf("a foreign certificate: %d", code)
			}
		}
		replace(t, file, theirs.pem)
		s.Soon(t, "a certificate of the new authority",
			200, func() (int, string) { return s.Ask(t, "/metrics", "", foreign) })
		if code, _ := s.Ask(t, "/metrics", "", mine); code != 401 {
			t.Errorf("a certificate of the old authority: %d", code)
		}
		// Its first request was before that of the other server, so it would have read the file again by now.
		if code, _ := gateOff.Ask(t, "/metrics", "", foreign); code != 401 {
			t.Errorf("a foreign certificate, with the gate off: %d", code)
		}
	})
	for _, config := range []string{"", "authentication: {webhook: {enabled: false}}\n",
		"authorization: {mode: AlwaysAllow}\n"} {
		w := &script.World{T: t, Dir: t.TempDir(), Alone: true, Config: "enableServer: true\n" + config}
		_, err := w.Settings()
		if err == nil {
			t.Errorf("%q without an API server is accepted", config)
			continue
		}
		if got := strings.Contains(err.Error(), "authentication.webhook.enabled"); got == strings.Contains(config,
			"authentication") {
			t.Errorf("%q without an API server: %v", config, err)
		}
		if got := strings.Contains(err.Error(), "authorization.mode"); got == strings.Contains(config, "AlwaysAllow") {
			t.Errorf("%q without an API server: %v", config, err)
		}
	}
}

func TestServingCertificateFiles(t *testing.T) {
	parity.Proves(t, "CFG-133")
	parity.ProvesPart(t, 2, "CFG-24")
	ca, dir := newIssuer(t), t.TempDir()
	crt, key := dir+"/tls.crt", dir+"/tls.key"
	shown := func(s *script.Served) string {
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	put := func(name string) {
		_, cert, k := ca.issue(t, name)
		replace(t, crt, cert)
		replace(t, key, k)
	}
	t.Run("none: one is made", func(t *testing.T) {
		s := script.Listening(t, "", script.Rights)
		if got := shown(s); !strings.HasPrefix(got, script.Node+"@") {
			t.Errorf("shows %s", got)
		}
		for _, f := range []string{"pki/kubelet.crt", "pki/kubelet.key"} {
			if _, err := os.Stat(s.Path(f)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("one of the cluster: none is made", func(t *testing.T) {
		s := script.Listening(t, "serverTLSBootstrap: true\n", script.Rights)
		for _, f := range []string{"pki/kubelet.crt", "pki/kubelet.key"} {
			if _, err := os.Stat(s.Path(f)); !os.IsNotExist(err) {
				t.Errorf("%s: %v, want no such file", f, err)
			}
		}
	})
	t.Run("files are followed, with the gate off they are not", func(t *testing.T) {
		put("first")
		config := "tlsCertFile: " + crt + "\ntlsPrivateKeyFile: " + key + "\n"
		gateOff := script.Listening(t, "featureGates: {ReloadKubeletServerCertificateFile: false}\n"+config,
			script.Rights)
		s := script.Listening(t, config, script.Rights)
		for _, s := range []*script.Served{gateOff, s} {
			if got := shown(s); got != "first" {
				t.Errorf("shows %s", got)
			}
		}
		put("second")
		script.Eventually(t, "the second to be shown",
			func() (string, bool) { got := shown(s); return got, got == "second" })
		// Its first request was before that of the other server, so it would have read the files again by now.
		if got := shown(gateOff); got != "first" {
			t.Errorf("after the files were replaced, with the gate off: %s", got)
		}
	})
}

func TestTLSSettings(t *testing.T) {
	parity.Proves(t, "CFG-26")
	parity.ProvesPart(t, 2, "CFG-25")
	dial := func(s *script.Served, c *tls.Config) (tls.ConnectionState, error) {
		c.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), c)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer conn.Close()
		return conn.ConnectionState(), nil
	}
	const suite = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
	s := script.Listening(t,
		"tlsMinVersion: VersionTLS12\ntlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA]\ntlsCurvePreferences: [24]\n", script.Rights)
	if got, err := dial(s, &tls.Config{MaxVersion: tls.VersionTLS12}); err != nil || got.CipherSuite != suite {
		t.Errorf("suite %x, %v", got.CipherSuite, err)
	}
	if _, err := dial(s, &tls.Config{
		MaxVersion:   tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384},
	}); err == nil {
		t.Error("a suite that is not in the list is used")
	}
	if _, err := dial(s, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("an old version is spoken")
	}
	if got, err := dial(s, &tls.Config{}); err != nil || got.CurveID != tls.CurveP384 {
		t.Errorf("curve %v, %v", got.CurveID, err)
	}
	if _, err := dial(s, &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP256}}); err == nil {
		t.Error("a curve that is not in the list is used")
	}
	s = script.Listening(t, "tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n",
		script.Rights)
	if _, err := dial(s, &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken where 1.3 is the least")
	}
	if got, err := dial(s, &tls.Config{}); err != nil || got.Version != tls.VersionTLS13 {
		t.Errorf("version %x, %v", got.Version, err)
	}
	without := &script.World{
		T:      t,
		Dir:    t.TempDir(),
		Config: "enableServer: true\ntlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n",
	}
	if _, err := without.Settings(); err == nil || !strings.Contains(err.Error(), "tlsCipherSuites") ||
		!strings.Contains(err.Error(), "which HTTP/2 requires") {
		t.Errorf("suites without the one that HTTP/2 requires: %v", err)
	}
	w := &script.World{
		T:      t,
		Dir:    t.TempDir(),
		Config: "tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]\n",
	}
	cfg, err := w.Settings()
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(cfg.Warnings, "\n"); !strings.Contains(all, "tlsCipherSuites is ignored") ||
		!strings.Contains(all, `insecure cipher "TLS_RSA_WITH_AES_128_CBC_SHA"`) {
		t.Errorf("warnings: %s", all)
	}
}

func TestHandlersThatCanBeOff(t *testing.T) {
	parity.Proves(t, "CFG-38", "CFG-97")
	parity.ProvesPart(t, 3, "CFG-40")
	debugging := []string{"/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c",
		"/runningpods/", "/logs/", "/debug/pprof/"}
	s := script.Listening(t, "", script.Rights)
	for _, path := range debugging {
		// Some need another method or an existing pod. The test checks only that the handlers exist.
		code, text := s.Ask(t, path, "good", nil)
		if code == 405 && !strings.HasPrefix(path, "/run/") || text == "Debug endpoints are disabled.\n" {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := s.Ask(t, s.Healthz, "", nil); code != 200 || text != "ok" {
		t.Errorf("health: %d %s", code, text)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v"} {
		if code, _ := s.Ask(t, path, "good", nil); path == "/debug/pprof/" && code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
	s = script.Listening(t, "enableDebuggingHandlers: false\n", script.Rights)
	for _, path := range debugging {
		if code, text := s.Ask(t, path, "good", nil); code != 405 || text != "Debug endpoints are disabled.\n" {
			t.Errorf("with debugging handlers off, %s: %d %s", path, code, text)
		}
	}
	if code, _ := s.Ask(t, "/metrics", "good", nil); code != 200 {
		t.Errorf("/metrics: %d", code)
	}
	s = script.Listening(t, "enableProfilingHandler: false\nenableDebugFlagsHandler: false\n", script.Rights)
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v"} {
		if code, text := s.Ask(t, path, "good", nil); code != 405 {
			t.Errorf("switched off, %s: %d %s", path, code, text)
		}
	}
	s = script.Listening(t, "healthzPort: 0\n", script.Rights)
	if code, _ := s.Ask(t, s.Healthz, "", nil); code != 0 {
		t.Errorf("without a port, health: %d", code)
	}
	w := &script.World{T: t, Dir: t.TempDir()}
	cfg, err := w.Settings()
	if err != nil || cfg.Kubelet.HealthzBindAddress != "127.0.0.1" {
		t.Errorf("by default health is served on %s, %v", cfg.Kubelet.HealthzBindAddress, err)
	}
}

func TestReadOnlyPort(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-23")
	port := script.FreePort(t)
	s := script.Listening(t, fmt.Sprintf("readOnlyPort: %d\n", port), script.Rights)
	if code, text := s.Ask(t, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), "", nil); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	s.Stop()
	s = script.Listening(t, "readOnlyPort: 0\n", script.Rights)
	if code, text := s.Ask(t, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), "", nil); code != 0 {
		t.Errorf("without a port: %d %s", code, text)
	}
	w := &script.World{T: t, Dir: t.TempDir(), Config: "readOnlyPort: 65536\n"}
	if _, err := w.Settings(); err == nil ||
		!strings.Contains(err.Error(), "readOnlyPort: 65536 must be between 0 and 65535") {
		t.Errorf("%v", err)
	}
	w.Config = ""
	if cfg, err := w.Settings(); err != nil || cfg.Kubelet.ReadOnlyPort != 0 {
		t.Errorf("by default: %d, %v", cfg.Kubelet.ReadOnlyPort, err)
	}
}

// TestPodsAreListed: /pods lists the pods of the API server and the static pods with their statuses. /runningpods/
// lists the pods that the runtime runs.
func TestPodsAreListed(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-15")
	parity.ProvesPart(t, 2, "SRV-26")
	parity.ProvesPart(t, 2, "SRV-28")
	s := script.Listening(t, open, nil)
	s.RunPod(t, "web", script.PlainPod)
	r := &script.Run{
		World:    s.World,
		Scenario: &script.Scenario{Files: map[string]string{"manifest.yaml": script.PlainPod}},
	}
	if err := r.Static([]string{"manifest.yaml"}); err != nil {
		t.Fatal(err)
	}
	list := func(path string) map[string]corev1.Pod {
		t.Helper()
		var pods corev1.PodList
		code, text := s.Ask(t, path, "", nil)
		if err := json.Unmarshal([]byte(text), &pods); err != nil || code != http.StatusOK || pods.Kind != "PodList" ||
			pods.APIVersion != "v1" {
			t.Fatalf("%s: %d %v %.300s", path, code, err, text)
		}
		out := map[string]corev1.Pod{}
		for _, p := range pods.Items {
			out[p.Name] = p
		}
		return out
	}
	static := "manifest-" + script.Node
	script.Eventually(t, "both pods to be shown as running", func() (string, bool) {
		pods := list("/pods")
		logged := fmt.Sprint(pods["web"].Status.Phase, " ", pods[static].Status.Phase)
		return logged, logged == "Running Running"
	})
	pods := list("/pods")
	for name, source := range map[string]string{"web": "api", static: "file"} {
		p := pods[name]
		if p.Annotations["kubernetes.io/config.source"] != source || p.Annotations["kubernetes.io/config.seen"] == "" ||
			len(p.Spec.Containers) != 1 || len(p.Status.ContainerStatuses) != 1 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if len(pods) != 2 || pods[static].Annotations["kubernetes.io/config.hash"] == "" {
		t.Errorf("there are %d pods, the static one is %+v", len(pods), pods[static].ObjectMeta)
	}
	running := list("/runningpods/")
	for name := range pods {
		p := running[name]
		if p.Namespace != script.Namespace || p.UID == "" || len(p.Spec.Containers) != 1 ||
			p.Spec.Containers[0].Name != "main" || p.Spec.NodeName != "" {
			t.Errorf("running: %+v", p)
		}
	}
	var shown struct{ Kubeletconfig map[string]any }
	code, text := s.Ask(t, "/configz", "", nil)
	err := json.Unmarshal([]byte(text), &shown)
	if err != nil || code != http.StatusOK || shown.Kubeletconfig["clusterDomain"] != "cluster.local" ||
		shown.Kubeletconfig["maxPods"] != 110.0 {
		t.Errorf("/configz: %d %v %.300s", code, err, text)
	}
}

// TestAFollowerOfASilentContainerIsAnswered: the response header is sent before the first line of the log,
// and a log that cannot be read is still answered with an error.
func TestAFollowerOfASilentContainerIsAnswered(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-25")
	s := script.Listening(t, open, nil)
	s.RunPod(t, "web", "spec: {containers: [{name: main, command: [sh, -c, 'sleep 3600']}]}\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := s.URL + "/containerLogs/" + script.Namespace + "/web/main?follow=true"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{
		TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
		ResponseHeaderTimeout: 10 * time.Second,
	}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("answered %d, %v", resp.StatusCode, resp.Header)
	}
	if !slices.Equal(resp.TransferEncoding, []string{"chunked"}) {
		t.Errorf("transfer encoding %q", resp.TransferEncoding)
	}
}

// TestWebSocketsAreTranslatedByDefault: the server translates them unless the gate is off.
func TestWebSocketsAreTranslatedByDefault(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-22")
	for config, want := range map[string]bool{"": true, "featureGates: {ExtendWebSocketsToKubelet: false}\n": false} {
		s := script.Listening(t, config+open, nil)
		s.RunPod(t, "web", "spec: {containers: [{name: main, command: [sh, -c, 'sleep 3600']}]}\n")
		at := s.URL + "/exec/" + script.Namespace + "/web/main?command=true&output=1"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13",
			"Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-Websocket-Protocol": "v5.channel.k8s.io",
		} {
			req.Header.Set(k, v)
		}
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
		if want &&
			(resp.StatusCode != http.StatusSwitchingProtocols ||
				resp.Header.Get("Sec-Websocket-Protocol") != "v5.channel.k8s.io") {
			t.Errorf("by default: %d %v", resp.StatusCode, resp.Header)
		}
		_, text := s.Ask(t, "/metrics", "", nil)
		if strings.Contains(text, `kubelet_websocket_streaming_requests_total{subresource="exec"} 1`) != want {
			t.Errorf("%q: translated is not %t", config, want)
		}
	}
}

// TestLogsAreReadAsAsked reads a log from the whole agent with each option of the request.
func TestLogsAreReadAsAsked(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-25")
	s := script.Listening(t, "featureGates: {PodLogsQuerySplitStreams: true}\n"+open, nil)
	s.RunPod(
		t,
		"talk",
		"spec: {containers: [{name: main, command: [sh, -c, 'echo one; echo two; echo three >&2; sleep 3600']}]}\n",
	)
	log := "/containerLogs/" + script.Namespace + "/talk/main"
	script.Eventually(t, "the log", func() (string, bool) {
		_, text := s.Ask(t, log, "", nil)
		return text, text == "one\ntwo\nthree\n"
	})
	later := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))
	for _, c := range []struct{ query, want string }{
		{"tailLines=1", "three\n"},
		{"tail=2", "two\nthree\n"},
		{"limitBytes=5", "one\nt"},
		{"sinceTime=" + later, ""},
		{"sinceTime=2001-01-01T00:00:00Z&tailLines=1", "three\n"},
		{"sinceSeconds=3600&limitBytes=4", "one\n"},
		{"stream=Stdout", "one\ntwo\n"},
		{"stream=Stderr", "three\n"},
	} {
		if code, text := s.Ask(t, log+"?"+c.query, "", nil); code != http.StatusOK || text != c.want {
			t.Errorf("%s: %d %q, want %q", c.query, code, text, c.want)
		}
	}
	_, stamped := s.Ask(t, log+"?timestamps=true&tailLines=1", "", nil)
	stamp, line, _ := strings.Cut(stamped, " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || line != "three\n" {
		t.Errorf("with a time: %q", stamped)
	}
}

// TestSourcesAreCheckedAsOftenAsConfigured has manifests in a directory and at a URL.
func TestSourcesAreCheckedAsOftenAsConfigured(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-20")
	parity.ProvesPart(t, 2, "CFG-21")
	asked := make(chan time.Time, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fmt.Sprint(r.Header["X-One"], r.Header["X-Two"]) != "[a b] [c]" {
			http.Error(w, "headers", http.StatusForbidden)
			return
		}
		asked <- time.Now()
		fmt.Fprintf(w,
			"apiVersion: v1\nkind: Pod\nmetadata: {name: far, namespace: default}\nspec: {containers: [{name: main, image: %s}]}\n", script.Image)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	s := script.Listening(t,
		"fileCheckFrequency: 1s\nhttpCheckFrequency: 4s\nstaticPodURL: http://"+l.Addr().String()+
			"/\nstaticPodURLHeader: {X-One: [a, b], X-Two: [c]}\n", script.Rights)
	var at []time.Time
	for len(at) < 4 {
		select {
		case now := <-asked:
			at = append(at, now)
		case <-time.After(script.Unhurried):
			t.Fatalf("asked %d times", len(at))
		}
	}
	// Two periods take eight seconds. One request may have been late, so at least four must have passed. The period is
	// not the one second of fileCheckFrequency.
	if took := at[3].Sub(at[1]); took < 4*time.Second {
		t.Errorf("three requests within %v", took)
	}
	r := &script.Run{World: s.World, Scenario: &script.Scenario{Files: map[string]string{"near.yaml": script.PlainPod}}}
	if err := r.Static([]string{"near.yaml"}); err != nil {
		t.Fatal(err)
	}
	script.Eventually(t, "both pods", func() (string, bool) {
		pods := s.Runtime.Pods()
		return fmt.Sprint(pods), len(pods) >= 2
	})
	w := &script.World{T: t, Dir: t.TempDir()}
	cfg, err := w.Settings()
	if err != nil || cfg.Kubelet.HTTPCheckFrequency.Duration != 20*time.Second {
		t.Errorf("by default: %v, %v", cfg.Kubelet.HTTPCheckFrequency, err)
	}
}

// TestStartOfANewNodeIsMeasured: metrics report how long the node took until it was ready, and its name.
func TestStartOfANewNodeIsMeasured(t *testing.T) {
	parity.Proves(t, "NODE-09")
	s := script.Listening(t, "", script.Rights)
	value := func(text, name string) (v float64, there bool) {
		for line := range strings.SplitSeq(text, "\n") {
			if n, err := fmt.Sscanf(line, name+" %g", &v); n == 1 && err == nil {
				return v, true
			}
		}
		return 0, false
	}
	var text string
	script.Eventually(t, "the start to be measured", func() (string, bool) {
		_, text = s.Ask(t, "/metrics", "good", nil)
		v, _ := value(text, "kubelet_node_startup_duration_seconds")
		return "", v > 0
	})
	if !strings.Contains(text, `kubelet_node_name{node="`+script.Node+`"} 1`) {
		t.Error("the node's name is not reported")
	}
	total, _ := value(text, "kubelet_node_startup_duration_seconds")
	var sum float64
	for _, part := range []string{"pre_kubelet", "pre_registration", "registration", "post_registration"} {
		v, there := value(text, "kubelet_node_startup_"+part+"_duration_seconds")
		if !there || v <= 0 {
			t.Errorf("%s: %v, reported %v", part, v, there)
		}
		sum += v
	}
	if diff := total - sum; diff > 0.001 || diff < -0.001 {
		t.Errorf("the parts are %v s, the whole %v s", sum, total)
	}
}

// TestLogsOfTheMachineAreThoseOfItsUsualDirectory: GET /logs/ shows the machine's /var/log.
func TestLogsOfTheMachineAreThoseOfItsUsualDirectory(t *testing.T) {
	parity.Differs(t, "SRV-27", "0010")
	s := script.Listening(t, open, nil)
	entries, err := os.ReadDir("/var/log")
	if err != nil || len(entries) == 0 {
		need.Skip(t, "this machine has no logs", err)
	}
	code, text := s.Ask(t, "/logs/", "", nil)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if code != http.StatusOK || !strings.Contains(text, ">"+e.Name()+"<") {
			t.Errorf("%d: %s is not shown in %q", code, e.Name(), text)
		}
	}
	// A query is answered if the configuration allows it; otherwise the directory is listed.
	const query, missing = "/logs/?query=no-such-service-here", "\nlog not found for no-such-service-here\n"
	if code, text := s.Ask(t, query, "", nil); code != http.StatusOK || text == missing {
		t.Errorf("a query by default: %d %q", code, text)
	}
	s = script.Listening(t, "enableSystemLogQuery: true\n"+open, nil)
	if code, text := s.Ask(t, query, "", nil); code != http.StatusOK || text != missing {
		t.Errorf("a query: %d %q", code, text)
	}
}
