package probe

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/await"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

const local = "127.0.0.1"

// handlers is a Prober whose handlers are called by hand.
func handlers() *Prober {
	return New(Config{
		Exec:     &fakeContainer{},
		Events:   &eventlog.Log{},
		OnChange: func(types.UID) {},
		Workers:  1,
		Version:  "1.36",
		Log:      slog.New(slog.DiscardHandler),
		Now:      time.Now,
	})
}

// web is a server as in a container; the address of its pod is local.
func web(t *testing.T, h http.HandlerFunc) (port intstr.IntOrString) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return portIn(t, s.URL)
}

func portIn(t *testing.T, address string) intstr.IntOrString {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(n)
}

func ask(t *testing.T, get *v1.HTTPGetAction) (outcome, string) {
	t.Helper()
	return handlers().http(t.Context(), get, &v1.Container{}, local, time.Minute)
}

func TestHTTPRequestHeaders(t *testing.T) {
	parity.Proves(t, "PROBE-20")
	var mu sync.Mutex
	var seen []*http.Request
	status := http.StatusOK
	record := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r)
		w.WriteHeader(status)
	}
	port := web(t, record)

	for code, want := range map[int]outcome{
		101: failure,
		200: success,
		204: success,
		299: success,
		304: warning,
		399: warning,
		400: failure,
		404: failure,
		500: failure,
		503: failure,
	} {
		mu.Lock()
		status = code
		mu.Unlock()
		o, text := ask(t, &v1.HTTPGetAction{Path: "/x", Port: port})
		if o != want || o == failure && text != fmt.Sprintf("HTTP probe failed with statuscode: %d", code) {
			t.Errorf("status %d is %v with %q, want %v", code, o, text, want)
		}
	}
	status = http.StatusOK
	addresses := map[string]bool{}
	for _, r := range seen {
		addresses[r.RemoteAddr] = true
		if r.Method != http.MethodGet || r.Proto != "HTTP/1.1" || !r.Close || r.Header.Get("Accept-Encoding") != "" ||
			r.URL.Path != "/x" ||
			r.Host != net.JoinHostPort(local, port.String()) {
			t.Errorf("asked %s %s %s, close %v, with %v", r.Method, r.Host, r.Proto, r.Close, r.Header)
		}
	}
	if len(addresses) != len(seen) {
		t.Errorf("%d requests over %d connections, want one each", len(seen), len(addresses))
	}
	if probeTransport.Proxy != nil {
		t.Error("probes go through a proxy")
	}

	secure := httptest.NewUnstartedServer(http.HandlerFunc(record))
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{}
	secure.StartTLS()
	defer secure.Close()
	seen = nil
	if o, text := ask(t, &v1.HTTPGetAction{
		Path:   "/",
		Port:   portIn(t, secure.URL),
		Scheme: v1.URISchemeHTTPS,
	}); o != success {
		t.Errorf("a certificate without a known issuer: %v with %q, want success", o, text)
	} else if seen[0].Proto != "HTTP/1.1" {
		t.Errorf("asked in %s, want HTTP/1.1", seen[0].Proto)
	}

	for name, tc := range map[string]struct {
		get  *v1.HTTPGetAction
		want outcome
	}{
		"a port by its name":       {&v1.HTTPGetAction{Port: intstr.FromString("web")}, success},
		"a scheme by its name":     {&v1.HTTPGetAction{Port: port, Scheme: v1.URISchemeHTTP}, success},
		"a number written as text": {&v1.HTTPGetAction{Port: intstr.FromString(port.String())}, success},
		"no port of that name":     {&v1.HTTPGetAction{Port: intstr.FromString("other")}, errored},
		"no such number":           {&v1.HTTPGetAction{Port: intstr.FromInt(70000)}, errored},
		// the server is not there
		"a host of its own":         {&v1.HTTPGetAction{Host: "127.0.0.2", Port: port}, failure},
		"a path without its slash":  {&v1.HTTPGetAction{Path: "x", Port: port}, success},
		"a path that is no URL":     {&v1.HTTPGetAction{Path: "/%zz", Port: port}, success},
		"a path with another host":  {&v1.HTTPGetAction{Path: "http://127.0.0.2/x", Port: port}, success},
		"a path with a query in it": {&v1.HTTPGetAction{Path: "/x?a=b", Port: port}, success},
	} {
		c := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port.IntVal}}}
		if o, text := handlers().http(t.Context(), tc.get, c, local, time.Minute); o != tc.want {
			t.Errorf("%s: %v with %q, want %v", name, o, text, tc.want)
		}
	}
}

func TestHTTPEndlessResponse(t *testing.T) {
	hold := make(chan struct{})
	port := web(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-hold
	})
	defer close(hold)
	if o, text := handlers().http(t.Context(), &v1.HTTPGetAction{Port: port}, &v1.Container{}, local,
		200*time.Millisecond); o != failure {
		t.Errorf("%v with %q, want a failure at the timeout", o, text)
	}
}

// TestHTTPNoAnswer: a probe without a response has upstream's text, which operators search for.
func TestHTTPNoAnswer(t *testing.T) {
	hold := make(chan struct{})
	port := web(t, func(http.ResponseWriter, *http.Request) { <-hold })
	defer close(hold)
	o, text := handlers().http(t.Context(), &v1.HTTPGetAction{Path: "/x", Port: port}, &v1.Container{}, local,
		200*time.Millisecond)
	want := fmt.Sprintf(
		`Get "http://127.0.0.1:%d/x": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
		port.IntVal)
	if o != failure || text != want {
		t.Errorf("%v with %q, want a failure with %q", o, text, want)
	}
}

// TestInvalidPorts: errors of a probe's port have upstream's text.
func TestInvalidPorts(t *testing.T) {
	c := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 80}}}
	for want, port := range map[string]intstr.IntOrString{
		"invalid port number: 0":                        intstr.FromInt(0),
		"invalid port number: 70000":                    intstr.FromString("70000"),
		`strconv.Atoi: parsing "other": invalid syntax`: intstr.FromString("other"),
	} {
		if n, err := portOf(port, c); err == nil || err.Error() != want {
			t.Errorf("%v is %d, %v; want %q", port, n, err, want)
		}
	}
}

func TestHTTPHeaders(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-21")
	type seen struct {
		host   string
		header http.Header
	}
	got := make(chan seen, 1)
	port := web(t, func(_ http.ResponseWriter, r *http.Request) { got <- seen{r.Host, r.Header} })
	address := net.JoinHostPort(local, port.String())
	for name, tc := range map[string]struct {
		headers                   []v1.HTTPHeader
		host, agent, accept, more string
	}{
		"none": {nil, address, "kube-probe/1.36", "*/*", ""},
		"the user's own": {[]v1.HTTPHeader{{Name: "user-agent", Value: "me"}, {Name: "Accept", Value: "text/html"}},
			address, "me", "text/html", ""},
		"an empty Accept": {[]v1.HTTPHeader{{Name: "accept", Value: ""}}, address, "kube-probe/1.36", "", ""},
		"an empty agent":  {[]v1.HTTPHeader{{Name: "User-Agent", Value: ""}}, address, "", "*/*", ""},
		"Host": {[]v1.HTTPHeader{{Name: "host", Value: "web.example"}}, "web.example",
			"kube-probe/1.36", "*/*", ""},
		"the first of two Hosts": {[]v1.HTTPHeader{{Name: "Host", Value: "a"}, {Name: "Host", Value: "b"}}, "a",
			"kube-probe/1.36", "*/*", ""},
		"several values of one": {[]v1.HTTPHeader{{Name: "X-More", Value: "1"}, {Name: "x-more", Value: "2"}}, address,
			"kube-probe/1.36", "*/*", "1,2"},
		"one that is not the agent": {[]v1.HTTPHeader{{Name: "X-More", Value: "1"}}, address, "kube-probe/1.36", "*/*", "1"},
	} {
		if o, text := ask(t, &v1.HTTPGetAction{Port: port, HTTPHeaders: tc.headers}); o != success {
			t.Errorf("%s: %v with %q", name, o, text)
			continue
		}
		r := <-got
		if r.host != tc.host || r.header.Get("User-Agent") != tc.agent || r.header.Get("Accept") != tc.accept ||
			strings.Join(r.header["X-More"], ",") != tc.more {
			t.Errorf("%s: host %q, headers %v", name, r.host, r.header)
		}
		if _, there := r.header["Accept"]; there && tc.accept == "" {
			t.Errorf("%s: an Accept header was sent, want none", name)
		}
	}
}

func TestHTTPRedirects(t *testing.T) {
	parity.Proves(t, "PROBE-22")
	parity.ProvesPart(t, 3, "SRV-59")
	var away atomic.Int32
	other := web(t, func(http.ResponseWriter, *http.Request) { away.Add(1) })
	port := web(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		switch {
		case r.URL.Path == "/away": // the same host by another name
			http.Redirect(w, r, "http://localhost:"+other.String()+"/", http.StatusFound)
		case r.URL.Path == "/port":
			http.Redirect(w, r, "http://"+local+":"+other.String()+"/", http.StatusFound)
		case err == nil && n > 0:
			http.Redirect(w, r, fmt.Sprintf("/%d", n-1), http.StatusMovedPermanently)
		}
	})
	for path, want := range map[string]outcome{
		"/0":    success,
		"/1":    success,
		"/9":    success,
		"/10":   failure,
		"/port": success,
	} {
		if o, text := ask(t, &v1.HTTPGetAction{Path: path, Port: port}); o != want ||
			want == failure && !strings.Contains(text, "stopped after 10 redirects") {
			t.Errorf("%s: %v with %q, want %v", path, o, text, want)
		}
	}
	away.Store(0)
	if o, text := ask(t, &v1.HTTPGetAction{Path: "/away", Port: port}); o != warning ||
		!strings.HasPrefix(text, "Probe terminated redirects, Response body: ") {
		t.Errorf("to another host: %v with %q, want a warning", o, text)
	}
	if away.Load() != 0 {
		t.Error("a redirect to another host was followed")
	}

	// The result is a success, and an event is recorded.
	n := &eventlog.Log{}
	p := running(t, Config{Exec: &fakeContainer{}, Events: n})
	spec := podWith(v1.Container{ReadinessProbe: &v1.Probe{
		PeriodSeconds:  1,
		TimeoutSeconds: 5,
		ProbeHandler:   v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/away", Port: port}},
	}})
	have := seen("1", time.Now())
	p.Sync(podplan.View{Pod: spec, Have: have}, []string{local}, false)
	await.True(t, "readiness", func() bool { return p.Result(spec, have.Containers[0]).Ready })
	await.True(t, "the event", func() bool { return len(n.Lines()) > 0 })
	if ev := n.Lines()[0]; !strings.HasPrefix(ev, "p/c Warning ProbeWarning Readiness probe warning: Probe terminated "+
		"redirects, Response body: ") {
		t.Errorf("event %q", ev)
	}
}

func TestHTTPBodyIsBounded(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-23")
	status := http.StatusOK
	port := web(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if r.URL.Path == "/endless" {
			for err := error(nil); err == nil; { // until the other side has enough
				_, err = w.Write(make([]byte, 64<<10))
			}
			return
		}
		_, _ = w.Write([]byte(strings.Repeat("x", maxOutput+1)))
	})
	if o, text := ask(t, &v1.HTTPGetAction{Port: port}); o != success || len(text) != 10<<10 {
		t.Errorf("%v with %d bytes, want a success with 10 KiB", o, len(text))
	}
	if o, text := ask(t, &v1.HTTPGetAction{Path: "/endless", Port: port}); o != success || len(text) != 10<<10 {
		t.Errorf("an answer without end: %v with %d bytes, want a success with 10 KiB", o, len(text))
	}
	status = http.StatusTeapot
	if o, text := ask(t, &v1.HTTPGetAction{Port: port}); o != failure ||
		text != "HTTP probe failed with statuscode: 418" {
		t.Errorf("%v with %q", o, text)
	}
}

// fakeExec is an Executor that returns the same result for every command and records the
// command and its timeout.
type fakeExec struct {
	output   string
	code     int32
	timedOut bool
	err      error

	command []string
	timeout time.Duration
}

func (a *fakeExec) Exec(
	_ context.Context, _ string, command []string, timeout time.Duration,
) ([]byte, int32, bool, error) {
	a.command, a.timeout = command, timeout
	return []byte(a.output), a.code, a.timedOut, a.err
}

func TestExec(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-19")
	long := strings.Repeat("x", 10<<10)
	for name, tc := range map[string]struct {
		answer fakeExec
		want   outcome
		text   string
	}{
		"succeeds":               {fakeExec{output: "fine"}, success, "fine"},
		"ends with another code": {fakeExec{output: "why", code: 3}, failure, "why"},
		"long output":            {fakeExec{output: long + "y", code: 1}, failure, long},
		"does not end": {fakeExec{timedOut: true}, failure,
			`command timed out: "check one $(NONE) $$  last" timed out after 2s`},
		"cannot be run": {fakeExec{err: errors.New("no such file")}, errored, "no such file"},
	} {
		a := tc.answer
		p := New(Config{
			Exec:     &a,
			Events:   &eventlog.Log{},
			OnChange: func(types.UID) {},
			Workers:  1,
			Version:  "1.36",
			Log:      slog.New(slog.DiscardHandler),
			Now:      time.Now,
		})
		c := &v1.Container{Env: []v1.EnvVar{
			{Name: "A", Value: "one"},
			{Name: "B", Value: "first"},
			{Name: "B", Value: "last"},
			{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		}}
		// A variable with valueFrom has no known value here, and is empty.
		probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{
			Exec: &v1.ExecAction{Command: []string{"check", "$(A)", "$(NONE)", "$$$", "$(IP)", "$(B)"}},
		}}
		o, text := p.handler(probe, 2*time.Second, &v1.Pod{}, c, "id", local)(t.Context())
		if o != tc.want || text != tc.text {
			t.Errorf("a command that %s: %v with %q, want %v with %q", name, o, text, tc.want, tc.text)
		}
		want := []string{"check", "one", "$(NONE)", "$$", "", "last"}
		if !slices.Equal(a.command, want) || a.timeout != 2*time.Second {
			t.Errorf("asked for %q within %v, want %q within 2 s", a.command, a.timeout, want)
		}
	}
}

func TestTCP(t *testing.T) {
	parity.Proves(t, "PROBE-24")
	l, err := net.Listen("tcp4", local+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := intstr.FromInt(l.Addr().(*net.TCPAddr).Port)
	tcp := &v1.TCPSocketAction{Port: port}
	if o, text := dial(t.Context(), tcp, &v1.Container{}, local, time.Minute); o != success || text != "" {
		t.Fatalf("%v with %q, want success", o, text)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || strings.Contains(err.Error(), "reset") {
		t.Errorf("the server reads %d bytes, %v; want an orderly end", n, err)
	}
	for name, tc := range map[string]struct {
		tcp  *v1.TCPSocketAction
		ip   string
		want outcome
	}{
		"a port by its name":   {&v1.TCPSocketAction{Port: intstr.FromString("web")}, local, success},
		"a host of its own":    {&v1.TCPSocketAction{Port: port, Host: local}, "127.0.0.2", success},
		"no listener":          {tcp, "127.0.0.2", failure},
		"an invalid port":      {&v1.TCPSocketAction{Port: intstr.FromInt(0)}, local, errored},
		"an unknown port name": {&v1.TCPSocketAction{Port: intstr.FromString("x")}, local, errored},
		"no address as of yet": {tcp, "not an address", failure},
	} {
		c := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port.IntVal}}}
		if o, text := dial(t.Context(), tc.tcp, c, tc.ip, time.Minute); o != tc.want {
			t.Errorf("%s: %v with %q, want %v", name, o, text, tc.want)
		}
	}

	// The socket options of a probe's connections.
	before := dialer.Control
	defer func() { dialer.Control = before }()
	var linger []uint64
	dialer.Control = func(network, address string, raw syscall.RawConn) error {
		if err := before(network, address, raw); err != nil {
			return err
		}
		return raw.Control(func(fd uintptr) {
			// Two numbers of 32 bits: whether it is on, and for how many seconds.
			both, err := unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_LINGER)
			if err != nil {
				t.Error(err)
			}
			linger = append(linger, both)
		})
	}
	if o, text := dial(t.Context(), tcp, &v1.Container{}, local, time.Minute); o != success {
		t.Fatalf("%v with %q, want success", o, text)
	}
	want := binary.NativeEndian.Uint64(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 1), 1))
	if !slices.Equal(linger, []uint64{want}) {
		t.Errorf("SO_LINGER of the probe's sockets: %#x, want on, for a second: %#x", linger, want)
	}
}

// agents records the user agents of requests.
type agents struct {
	grpc_health_v1.HealthServer
	seen atomic.Value
}

func (a *agents) Check(
	ctx context.Context, r *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	a.seen.Store(strings.Join(md["user-agent"], " "))
	if r.Service == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a.HealthServer.Check(ctx, r)
}

// serveHealth starts a gRPC server that is healthy, with the service "sick" that is not.
func serveHealth(t *testing.T) (*agents, int32) {
	t.Helper()
	h := health.NewServer()
	h.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	h.SetServingStatus("unsure", grpc_health_v1.HealthCheckResponse_UNKNOWN)
	a := &agents{HealthServer: h}
	return a, serveGRPC(t, local, func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, a) })
}

func serveGRPC(t *testing.T, ip string, register func(*grpc.Server)) (port int32) {
	t.Helper()
	l, err := net.Listen("tcp4", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func TestGRPC(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-25")
	server, port := serveHealth(t)
	bare := serveGRPC(t, local, func(*grpc.Server) {})
	for _, tc := range []struct {
		service *string
		port    int32
		want    outcome
		text    string
	}{
		{nil, port, success, "service healthy"},
		{new(string), port, success, "service healthy"},
		{text("sick"), port, failure, `service unhealthy (responded with "NOT_SERVING")`},
		{text("unsure"), port, failure, `service unhealthy (responded with "UNKNOWN")`},
		{text("absent"), port, failure, "error: health rpc probe failed: "},
		{text("slow"), port, failure, "timeout: health rpc did not complete within 1s"},
		{nil, bare, failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "},
		{nil, 1, failure, `timeout: failed to connect service "127.0.0.1:1" within 1s: context deadline exceeded`},
	} {
		timeout := time.Minute
		if tc.port == 1 || tc.service != nil && *tc.service == "slow" {
			timeout = time.Second
		}
		o, got := handlers().grpc(t.Context(), &v1.GRPCAction{Port: tc.port, Service: tc.service}, local, timeout)
		if o != tc.want || !strings.HasPrefix(got, tc.text) {
			t.Errorf("service %v: %v with %q, want %v with %q", tc.service, o, got, tc.want, tc.text)
		}
	}
	if agent, _ := server.seen.Load().(string); !strings.HasPrefix(agent, "kube-probe/1.36 ") {
		t.Errorf("asked as %q, want kube-probe/1.36", agent)
	}
}

// TestGRPCUsesFirstPodIP: a gRPC probe connects to the first address of the pod, and to no other.
func TestGRPCUsesFirstPodIP(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-25")
	const first, second = "127.0.0.8", "127.0.0.9"
	port := serveGRPC(t, first, func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, health.NewServer()) })
	spec, have := podWith(v1.Container{ReadinessProbe: &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port}},
		PeriodSeconds: 1,
	}}), seen("1", time.Now())
	p := running(t, Config{Exec: two{}, Events: &eventlog.Log{}})
	p.Sync(podplan.View{Pod: spec, Have: have}, []string{first, second}, false)
	await.True(t, "an answer", func() bool { return p.Result(spec, have.Containers[0]).Ready })
}

func text(s string) *string { return &s }

// running is a Prober that runs in real time.
func running(t *testing.T, cfg Config) *Prober {
	t.Helper()
	cfg.OnChange, cfg.Workers, cfg.Version, cfg.Log, cfg.Now = func(types.UID) {}, 64, "1.36", slog.New(
		slog.DiscardHandler), time.Now
	p := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// two is a container runtime in which one container is healthy and the other is not.
type two struct{}

func (two) Exec(_ context.Context, id string, _ []string, _ time.Duration) ([]byte, int32, bool, error) {
	if strings.Contains(id, "sick") {
		return nil, 1, false, nil
	}
	return nil, 0, false, nil
}

// TestAllProbeKindsAndHandlers runs all of them in one pod, for regular containers and
// sidecars, once successful and once failing.
func TestAllProbeKindsAndHandlers(t *testing.T) {
	parity.Proves(t, "PROBE-01")
	port := web(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sick" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	_, grpcPort := serveHealth(t)
	make := map[string]func(how string) v1.ProbeHandler{
		"exec": func(how string) v1.ProbeHandler {
			return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{how}}}
		},
		"http": func(how string) v1.ProbeHandler {
			return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/" + how, Port: port}}
		},
		"tcp": func(how string) v1.ProbeHandler {
			tcp := &v1.TCPSocketAction{Port: port}
			if how == "sick" {
				tcp.Host = "127.0.0.2" // without a listener
			}
			return v1.ProbeHandler{TCPSocket: tcp}
		},
		"grpc": func(how string) v1.ProbeHandler {
			service := map[string]string{"well": "", "sick": "sick"}[how]
			return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: grpcPort, Service: &service}}
		},
	}
	spec := podWith(v1.Container{})
	spec.Spec.Containers = nil
	var have pod.Runtime
	always := v1.ContainerRestartPolicyAlways
	add := func(c v1.Container, where string) {
		c.Name = where + "-" + c.Name
		have.Containers = append(have.Containers, pod.Container{
			ID:        c.Name,
			Name:      c.Name,
			State:     pod.StateRunning,
			StartedAt: time.Now(),
		})
		switch where {
		case "main":
			spec.Spec.Containers = append(spec.Spec.Containers, c)
		case "sidecar":
			c.RestartPolicy = &always
			fallthrough
		case "init":
			spec.Spec.InitContainers = append(spec.Spec.InitContainers, c)
		case "ephemeral":
			spec.Spec.EphemeralContainers = append(spec.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: c.Name, LivenessProbe: c.LivenessProbe},
			})
		}
	}
	for _, where := range []string{"main", "sidecar", "init", "ephemeral"} {
		for handler, by := range make {
			for _, how := range []string{"well", "sick"} {
				probe := func() *v1.Probe {
					return &v1.Probe{ProbeHandler: by(how), PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 1}
				}
				name := handler + "-" + how
				add(v1.Container{Name: name + "-startup", StartupProbe: probe()}, where)
				add(v1.Container{Name: name + "-liveness", LivenessProbe: probe()}, where)
				add(v1.Container{Name: name + "-readiness", ReadinessProbe: probe()}, where)
			}
		}
	}
	n := &eventlog.Log{}
	p := running(t, Config{Exec: two{}, Events: n})
	p.Sync(podplan.View{Pod: spec, Have: have}, []string{local}, false)

	byName := map[string]map[string]float64{} // container → probe_type/result → runs
	await.True(t, "a run of every probe", func() bool {
		for series, n := range scrape.Of(t, p) {
			labels := strings.Split(strings.TrimSuffix(series[strings.Index(series, "{")+1:], "}"), ",")
			l := map[string]string{}
			for _, kv := range labels {
				k, v, _ := strings.Cut(kv, "=")
				l[k] = v
			}
			if l["result"] == "" {
				continue
			}
			if byName[l["container"]] == nil {
				byName[l["container"]] = map[string]float64{}
			}
			byName[l["container"]][l["probe_type"]+"/"+l["result"]] = n
		}
		return len(byName) >= 2*4*2*3
	})
	for _, c := range have.Containers {
		f := strings.Split(c.Name, "-")
		where, how, kind := f[0], f[2], f[3]
		runs := byName[c.Name]
		if where == "init" || where == "ephemeral" {
			if len(runs) != 0 {
				t.Errorf("%s was probed: %v", c.Name, runs)
			}
			continue
		}
		result := map[string]string{"well": "successful", "sick": "failed"}[how]
		if want := strings.ToUpper(kind[:1]) + kind[1:] + "/" + result; len(runs) != 1 || runs[want] == 0 {
			t.Errorf("%s: runs %v, want some %s", c.Name, runs, want)
		}
		r, want := p.Result(spec, c), Result{Started: true, Ready: true}
		if how == "sick" {
			want = map[string]Result{
				"startup":   {StartupFailed: true},
				"liveness":  {Started: true, Ready: true, LivenessFailed: true},
				"readiness": {Started: true},
			}[kind]
		}
		if r != want {
			t.Errorf("%s: %+v, want %+v", c.Name, r, want)
		}
	}
}

// A body that does not arrive in time fails the probe, as a missing header does.
func TestHTTPBodyTimeout(t *testing.T) {
	port := web(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	get := &v1.HTTPGetAction{Port: port}
	o, text := handlers().http(t.Context(), get, &v1.Container{}, local, 200*time.Millisecond)
	if o != failure || !strings.Contains(text, "Client.Timeout") {
		t.Errorf("%v with %q, want a failure", o, text)
	}
}
