package client

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"keelson/test/kit/memhttp"
	"keelson/test/kit/parity"
)

// TestExecCredentials: a kubeconfig may name an exec plugin that provides the token.
func TestExecCredentials(t *testing.T) {
	parity.Proves(t, "CFG-138")
	seen := make(chan string, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
	}))
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\necho "+
		"'{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":"+
		"\"'$WORD'\"}}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: srv.URL, InsecureSkipTLSVerify: true}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion:      "client.authentication.k8s.io/v1",
		Command:         plugin,
		Env:             []clientcmdapi.ExecEnvVar{{Name: "WORD", Value: "sesame"}},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	client, err := New(Config{Kubeconfig: file, Version: "v1", ContentType: "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseConnections)
	if _, err := client.Nodes.Get(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "Bearer sesame" {
		t.Errorf("authorization %q", got)
	}
}

// TestConnections: by default requests share one HTTP/2 connection. DISABLE_HTTP2 selects HTTP/1.1, for proxies that do
// not support HTTP/2. CloseConnections closes the connections of both.
func TestConnections(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-136")
	for env, major := range map[string]int{"": 2, "1": 1} {
		t.Setenv("DISABLE_HTTP2", env)
		type visit struct {
			major  int
			remote string
		}
		seen := make(chan visit, 10)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- visit{r.ProtoMajor, r.RemoteAddr}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
		}))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		t.Cleanup(srv.Close)
		c, err := NewFor(&rest.Config{
			Host:            srv.URL,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		}, Config{Version: "v1", ContentType: "application/json"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseConnections)
		ask := func() visit {
			t.Helper()
			if _, err := c.Nodes.Get(t.Context(), "n"); err != nil {
				t.Fatal(err)
			}
			return <-seen
		}
		first, second := ask(), ask()
		if first.major != major || first != second {
			t.Errorf("DISABLE_HTTP2=%q: %+v, %+v", env, first, second)
		}
		c.CloseConnections()
		if third := ask(); third == first || third.major != major {
			t.Errorf("DISABLE_HTTP2=%q, after all were dropped: %+v", env, third)
		}
	}
}

// TestSeparateRates: events, heartbeats and other calls do not wait for each other in a rate limiter.
func TestSeparateRates(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-137")
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes/hangs") {
			<-hang
			return
		}
		kind := map[bool]string{true: "Node", false: "Pod"}[strings.Contains(r.URL.Path, "/nodes/")]
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"` + kind + `","apiVersion":"v1","metadata":{"name":"n"}}`))
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(hang) })
	client := func(heartbeat time.Duration) *Client {
		c, err := NewFor(&rest.Config{Host: srv.URL}, Config{
			Version:     "v1",
			ContentType: "application/json",
			QPS:         0.001,
			Burst:       1,
			EventQPS:    0.001,
			EventBurst:  1,
			Heartbeat:   heartbeat,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseConnections)
		return c
	}
	c := client(time.Minute)
	short := func() context.Context { // shorter than the wait for the rate limiter
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := c.Pods.Get(short(), "ns", "n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pods.Get(short(), "ns", "n"); err == nil {
		t.Error("a second call, far over the rate, goes through")
	}
	if _, err := c.events.Create(short(), "ns", &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}}); err != nil {
		t.Errorf("the first event waits for other calls: %v", err)
	}
	for range 20 {
		if _, err := c.Nodes.Get(short(), "n"); err != nil {
			t.Fatalf("a heartbeat waits: %v", err)
		}
	}
	// A heartbeat that hangs times out.
	if _, err := client(50*time.Millisecond).Nodes.Get(t.Context(), "hangs"); err == nil {
		t.Error("a heartbeat that hangs has an answer")
	}
}

// late is an identity without a certificate until there is closed.
type late struct {
	there   chan struct{}
	refused chan *tls.Certificate
}

func (l late) Current() *tls.Certificate { return nil }

func (l late) Refused(c *tls.Certificate) { l.refused <- c }

func (l late) Valid(ctx context.Context) (*tls.Certificate, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.there:
		return emptyCertificate, nil
	}
}

// emptyCertificate is an empty certificate.
var emptyCertificate = &tls.Certificate{}

// TestIdentityRefused: Refused is called if the server does not authenticate the certificate, but not if it denies
// authorization.
func TestIdentityRefused(t *testing.T) {
	code := make(chan int, 1)
	srv := httptest.NewTLSServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(<-code) }))
	t.Cleanup(srv.Close)
	id := late{make(chan struct{}), make(chan *tls.Certificate, 10)}
	close(id.there)
	c, err := NewFor(&rest.Config{
		Host:            srv.URL,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, Config{Version: "v1", ContentType: "application/json", Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseConnections)
	for status, want := range map[int]int{http.StatusUnauthorized: 1, http.StatusForbidden: 0, http.StatusNotFound: 0} {
		code <- status
		if _, err := c.Nodes.Get(t.Context(), "n"); err == nil {
			t.Errorf("%d is no error", status)
		}
		if got := len(id.refused); got != want {
			t.Errorf("%d: reported %d times, want %d", status, got, want)
		}
		for range len(id.refused) {
			if <-id.refused != emptyCertificate {
				t.Error("of another certificate")
			}
		}
	}
}

// TestRequestsWaitForCertificate: without a certificate, requests wait and are not sent anonymously.
func TestRequestsWaitForCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan string, 10)
		server := memhttp.Transport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.Header.Get("Authorization")
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
		}))
		id := late{there: make(chan struct{})}
		c, err := NewFor(&rest.Config{Host: "http://server", BearerToken: "bootstrap"}, Config{
			Version:     "v1",
			ContentType: "application/json",
			Identity:    id,
			Wrap:        func(http.RoundTripper) http.RoundTripper { return server },
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { _, err := c.Nodes.Get(t.Context(), "n"); done <- err }()
		synctest.Wait()
		if len(asked) > 0 || len(done) > 0 {
			t.Fatal("asked without a certificate")
		}
		close(id.there)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if auth := <-asked; auth != "" {
			t.Errorf("the bootstrap's credentials are used: %s", auth)
		}
	})
}
