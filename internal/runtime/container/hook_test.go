package container

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// seen records the requests that a server got.
type seen struct {
	mu   sync.Mutex
	reqs []*http.Request
}

func (s *seen) add(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reqs = append(s.reqs, r)
}

func (s *seen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.reqs {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		accept := "none"
		if values := r.Header.Values("Accept"); len(values) > 0 {
			accept = strconv.Quote(values[0])
		}
		out = append(out,
			fmt.Sprintf("%s %s %s %s auth=%q agent=%q accept=%s", scheme, r.Method, r.Host, r.URL,
				r.Header.Get("Authorization"),
				r.Header.Get("User-Agent"), accept))
	}
	return out
}

func TestHTTPHook(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.Proves(t, "LIFE-55")
	for _, tc := range []struct {
		name   string
		tls    bool // the server uses TLS
		status int
		get    v1.HTTPGetAction
		want   []string // HOST stands for the server's address
		err    string
		events []string
	}{
		{
			name: "the pod's address",
			get:  v1.HTTPGetAction{Path: "/a?b=c"},
			want: []string{`http GET HOST /a?b=c auth="" agent="kube-lifecycle/1.36" accept="*/*"`},
		},
		{
			name:   "an HTTP error status is not a failure",
			status: 500,
			get:    v1.HTTPGetAction{Path: "/"},
			want:   []string{`http GET HOST / auth="" agent="kube-lifecycle/1.36" accept="*/*"`},
		},
		{
			name: "certificates are not verified",
			tls:  true,
			get:  v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Path: "/"},
			want: []string{`https GET HOST / auth="" agent="kube-lifecycle/1.36" accept="*/*"`},
		},
		{
			name: "headers",
			get: v1.HTTPGetAction{
				Path: "/",
				HTTPHeaders: []v1.HTTPHeader{
					{Name: "Host", Value: "virtual"},
					{Name: "User-Agent", Value: "me"},
					{Name: "Accept", Value: "text/x"},
					{Name: "Authorization", Value: "Basic x"},
				},
			},
			want: []string{`http GET virtual / auth="Basic x" agent="me" accept="text/x"`},
		},
		{
			name: "the first Host header is used, and an empty Accept header is omitted",
			get: v1.HTTPGetAction{
				Path: "/",
				HTTPHeaders: []v1.HTTPHeader{
					{Name: "Host", Value: "one"},
					{Name: "Host", Value: "two"},
					{Name: "accept", Value: ""},
				},
			},
			want: []string{`http GET one / auth="" agent="kube-lifecycle/1.36" accept=none`},
		},
		{
			name: "a server without TLS: fallback to HTTP without credentials",
			get: v1.HTTPGetAction{
				Scheme:      v1.URISchemeHTTPS,
				Path:        "/",
				HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "Basic x"}},
			},
			want: []string{`http GET HOST / auth="" agent="kube-lifecycle/1.36" accept="*/*"`},
			events: []string{"web Warning LifecycleHTTPFallback request to HTTPS lifecycle hook HOST got HTTP response, " +
				"retry with HTTP succeeded"},
		},
		{
			name: "a redirect on the host is followed",
			get:  v1.HTTPGetAction{Path: "/to?/b"},
			want: []string{`http GET HOST /to?/b auth="" agent="kube-lifecycle/1.36" accept="*/*"`,
				`http GET HOST /b auth="" agent="kube-lifecycle/1.36" accept="*/*"`},
		},
		{
			name: "one to another host is an answer",
			get:  v1.HTTPGetAction{Path: "/to?http://127.9.9.9:1/"},
			want: []string{`http GET HOST /to?http://127.9.9.9:1/ auth="" agent="kube-lifecycle/1.36" accept="*/*"`},
		},
		{
			name: "connection refused",
			get:  v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(1), Path: "/x"},
			err:  `HTTP lifecycle hook (/x) for Container "main" in Pod "web_ns(uid-1)" failed - error: `,
		},
		{
			name: "an unknown port name",
			get:  v1.HTTPGetAction{Port: intstr.FromString("no"), Path: "/"},
			err:  `strconv.Atoi: parsing "no": invalid syntax`,
		},
		{
			name: "no port at all",
			get:  v1.HTTPGetAction{Port: intstr.FromInt32(-1), Path: "/"},
			err:  "invalid port number: -1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got seen
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got.add(r)
				if r.URL.Path == "/to" {
					http.Redirect(w, r, r.URL.RawQuery, http.StatusFound)
				}
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
			})
			srv := httptest.NewUnstartedServer(handler)
			if tc.tls {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			defer srv.Close()
			u, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			reg := prometheus.NewRegistry()
			b := newBench(t, func(c *Config) { c.Registry = reg })
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				t.Fatal(err)
			}
			p := simplePod(
				func(c *v1.Container) { c.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}} },
			)
			if tc.get.Port == (intstr.IntOrString{}) {
				tc.get.Port = intstr.FromString("web")
			}
			err = b.runHook(t.Context(), hookCall{
				pod:       p,
				container: &p.Spec.Containers[0],
				podIPs:    []string{u.Hostname()},
				handler:   &v1.LifecycleHandler{HTTPGet: &tc.get},
			})
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			fill := func(lines []string) []string {
				var out []string
				for _, l := range lines {
					out = append(out, strings.ReplaceAll(l, "HOST", u.Host))
				}
				return out
			}
			if want := fill(tc.want); !slices.Equal(got.lines(), want) {
				t.Errorf("requests %q\nwant %q", got.lines(), want)
			}
			if want := fill(tc.events); !slices.Equal(b.events.Lines(), want) {
				t.Errorf("events %q, want %q", b.events.Lines(), want)
			}
			if n := counted(t, reg, "kubelet_lifecycle_handler_http_fallbacks_total",
				nil); n != float64(len(tc.events)) {
				t.Errorf("counted %v fallbacks", n)
			}
		})
	}
}

// There is no fallback to HTTP for other TLS errors: the request should stay encrypted.
func TestHTTPHookNoFallbackForTLSError(t *testing.T) {
	var got seen
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.add(r) }))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	srv.Config.ErrorLog = discardLog()
	srv.StartTLS()
	defer srv.Close()
	host, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, nil)
	p := simplePod(nil)
	h := &v1.LifecycleHandler{
		HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Host: host, Port: intstr.FromString(port)},
	}
	if err := b.runHook(t.Context(), hookCall{pod: p, container: &p.Spec.Containers[0], handler: h}); err == nil {
		t.Error("no error")
	}
	if len(got.lines()) > 0 || len(b.events.Lines()) > 0 {
		t.Errorf("requests %q, events %q; want none", got.lines(), b.events.Lines())
	}
}

func TestHTTPHookWithoutPodIP(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(nil)
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80)}}
	call := hookCall{pod: p, container: &p.Spec.Containers[0], handler: h}
	if err := b.runHook(t.Context(), call); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("error %v, want one about the address", err)
	}
	p.Spec.HostNetwork = true
	if ips := b.podIPs(p, nil); !slices.Equal(ips, []string{"192.0.2.10"}) {
		t.Errorf("on the host's network the pod has %q, want the node's addresses", ips)
	}
}

func TestSleepHookTerminatedEarlyMetric(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-56")
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *Config) { c.Registry = reg })
	p := simplePod(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call := hookCall{
		pod:       p,
		container: &p.Spec.Containers[0],
		handler:   &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}},
	}
	if err := b.runHook(ctx, call); err == nil {
		t.Error("no error")
	}
	if n := counted(t, reg, "kubelet_sleep_action_terminated_early_total", nil); n != 1 {
		t.Errorf("counted %v", n)
	}
}

func TestRestoreFromAnnotations(t *testing.T) {
	p := simplePod(func(c *v1.Container) {
		c.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 80, Protocol: v1.ProtocolTCP}}
		c.Lifecycle = &v1.Lifecycle{
			PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("web"), Path: "/bye"}},
		}
	})
	a, err := containerAnnotations(p, &p.Spec.Containers[0], 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := restore(Stop{Ref: pod.RefOf(p), Container: pod.Container{Name: "main", Annotations: a}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := hookRequest(s.Spec.Lifecycle.PreStop.HTTPGet, s.Spec, []string{"fd00::5"}, "x")
	if err != nil || req.URL.String() != "http://[fd00::5]:80/bye" {
		t.Errorf("the hook would call %v, %v", req.URL, err)
	}
	if describe(s.Pod) != "web_ns(uid-1)" {
		t.Errorf("the pod is %s", describe(s.Pod))
	}
}

// discardLog discards the log of a test server.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// TestInvalidHookHandler: a hook of a type that was never implemented fails with upstream's text.
func TestInvalidHookHandler(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(func(c *v1.Container) {
		c.Lifecycle = &v1.Lifecycle{
			PostStart: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}},
		}
	})
	_, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p)))
	want := "Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil," +
		"TCPSocket:&TCPSocketAction{Port:{0 1 },Host:,},Sleep:nil,}"
	if failure == nil || failure.Reason != "PostStartHookError" || failure.Message != want {
		t.Errorf("got %v, want PostStartHookError with %q", failure, want)
	}
}
