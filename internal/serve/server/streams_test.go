package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	gwebsocket "github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	"keelson/internal/serve/server"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

func (r *rig) restConfig() *rest.Config {
	return &rest.Config{
		Host:            "https://" + r.addr[server.Secure],
		BearerToken:     "token-admin",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// executors returns an executor for each of the two protocols of clients.
func (r *rig) executors(path, query string) map[string]remotecommand.Executor {
	r.t.Helper()
	u := &url.URL{Scheme: "https", Host: r.addr[server.Secure], Path: path, RawQuery: query}
	s, err := remotecommand.NewSPDYExecutor(r.restConfig(), "POST", u)
	if err != nil {
		r.t.Fatal(err)
	}
	w, err := remotecommand.NewWebSocketExecutor(r.restConfig(), "GET", u.String())
	if err != nil {
		r.t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": s, "WebSocket v5": w}
}

type oneSize struct{ sent bool }

func (o *oneSize) Next() *remotecommand.TerminalSize {
	if o.sent {
		return nil
	}
	o.sent = true
	return &remotecommand.TerminalSize{Width: 80, Height: 24}
}

func TestExec(t *testing.T) {
	parity.Proves(t, "SRV-19")
	parity.ProvesPart(t, 6, "SRV-22")
	parity.ProvesPart(t, 2, "SRV-23")
	r := newRig(t)
	const path = "/exec/default/web/main"
	big := strings.Repeat("0123456789abcdef", 1<<14)
	for name, ex := range r.executors(path, "command=cat&input=1&output=1") {
		var out bytes.Buffer
		// cat ends only when its input is closed.
		if err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin:  strings.NewReader(big),
			Stdout: &out,
		}); err != nil {
			t.Errorf("%s: cat: %v", name, err)
		}
		if out.String() != big {
			t.Errorf("%s: cat gave back %d bytes of %d", name, out.Len(), len(big))
		}
	}
	for name, ex := range r.executors("/exec/default/web/uid-web/main",
		"command=say&command=two+words&command=&command=last&output=1") {
		var out bytes.Buffer
		err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
		if want := `["two words" "" "last"]`; err != nil || out.String() != want {
			t.Errorf("%s: words: %q, %v, want %s", name, &out, err, want)
		}
	}
	for name, ex := range r.executors(path, "command=false&output=1&error=1") {
		var out, errs bytes.Buffer
		err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
		var code exec.CodeExitError
		if !errors.As(err, &code) || code.Code != 3 || errs.String() != "no\n" || out.Len() > 0 {
			t.Errorf("%s: false: error %v, stdout %q, stderr %q", name, err, &out, &errs)
		}
	}
	for name, ex := range r.executors(path, "command=size&output=1&error=1&tty=1&input=1") {
		var out bytes.Buffer
		if err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin:             strings.NewReader(""),
			Stdout:            &out,
			Tty:               true,
			TerminalSizeQueue: &oneSize{},
		}); err != nil {
			t.Errorf("%s: size: %v", name, err)
		}
		if out.String() != "80x24 tty=true" {
			t.Errorf("%s: size: %q", name, &out)
		}
	}
}

func TestAttach(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-20")
	r := newRig(t)
	for _, path := range []string{"/attach/default/web/main", "/attach/default/web/uid-web/main"} {
		for name, ex := range r.executors(path, "output=1") {
			var out bytes.Buffer
			err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
			if err != nil || out.String() != "attached to id-main\n" {
				t.Errorf("%s at %s: %q, %v", name, path, &out, err)
			}
		}
	}
	if got := r.as("admin", "GET", "/metrics"); !strings.Contains(got.text,
		`kubelet_websocket_streaming_requests_total{subresource="attach"} 2`) {
		t.Error("the request over WebSocket was not counted")
	}
	parity.Proves(t, "SRV-55")
}

// Connections with an older WebSocket protocol are passed through to the runtime.
func TestExecOverOlderWebSocket(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-22")
	r := newRig(t)
	c := r.websocket("/exec/default/web/main?command=cat&input=1&output=1", "v4.channel.k8s.io")
	if c.Subprotocol() != "v4.channel.k8s.io" {
		t.Fatalf("subprotocol %q", c.Subprotocol())
	}
	if err := c.WriteMessage(gwebsocket.BinaryMessage, []byte("\x00hello")); err != nil {
		t.Fatal(err)
	}
	for {
		_, m, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if string(m) == "\x01hello" {
			break
		}
		if len(m) > 1 {
			t.Fatalf("message %q", m)
		}
	}
	r.rt.mu.Lock()
	defer r.rt.mu.Unlock()
	for _, k := range []string{"Authorization", "Cookie", "X-Secret"} {
		if v := r.rt.headers[0].Get(k); v != "" {
			t.Errorf("the runtime was handed %s: %s", k, v)
		}
	}
}

// TestWebSocketTranslation: the server terminates WebSocket connections and uses SPDY to the
// runtime; with the gate off it passes the WebSocket connection through to the runtime.
func TestWebSocketTranslation(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-22")
	for translates, want := range map[bool][2]string{true: {"SPDY/3.1", "1"}, false: {"websocket", "0"}} {
		r := newRig(t, func(p *parts) { p.server.ExtendWebSockets = translates })
		url := "https://" + r.addr[server.Secure] + "/exec/default/web/main?command=cat&input=1&output=1"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"Authorization":          "Bearer token-admin",
			"Connection":             "Upgrade",
			"Upgrade":                "websocket",
			"Sec-Websocket-Version":  "13",
			"Sec-Websocket-Key":      "dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-Websocket-Protocol": "v5.channel.k8s.io",
		} {
			req.Header.Set(k, v)
		}
		resp, err := r.http1().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Sec-Websocket-Protocol"); translates &&
			(resp.StatusCode != 101 || got != "v5.channel.k8s.io") {
			t.Errorf("answered %d in %q", resp.StatusCode, got)
		}
		// With translation the client gets its response before the runtime is called.
		select {
		case <-r.rt.asked:
		case <-time.After(time.Minute):
			t.Fatal("the runtime was not asked")
		}
		resp.Body.Close()
		r.rt.mu.Lock()
		if len(r.rt.headers) != 1 || r.rt.headers[0].Get("Upgrade") != want[0] {
			t.Errorf("translated %t: the runtime was asked %v, want %s", translates, r.rt.headers, want[0])
		}
		r.rt.mu.Unlock()
		counted := `kubelet_websocket_streaming_requests_total{subresource="exec"} ` + want[1]
		if got := r.as("admin", "GET", "/metrics"); strings.Contains(got.text, counted) != translates {
			t.Errorf("translated %t: counted otherwise", translates)
		}
	}
}

// TestSPDYVersions: with every client the newest protocol version that it offers is used.
func TestSPDYVersions(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-22")
	r := newRig(t)
	for offers, want := range map[string]string{
		"v4.channel.k8s.io": "v4.channel.k8s.io",
		"v3.channel.k8s.io": "v3.channel.k8s.io",
		"v2.channel.k8s.io": "v2.channel.k8s.io",
		"channel.k8s.io":    "channel.k8s.io",
		"v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io": "v4.channel.k8s.io",
		"v2.channel.k8s.io channel.k8s.io":                                     "v2.channel.k8s.io",
	} {
		url := "https://" + r.addr[server.Secure] + "/exec/default/web/main?command=cat&input=1&output=1"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer token-admin")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "SPDY/3.1")
		req.Header["X-Stream-Protocol-Version"] = strings.Fields(offers)
		resp, err := r.http1().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		chosen := resp.Header.Get("X-Stream-Protocol-Version")
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "SPDY/3.1" ||
			chosen != want {
			t.Errorf("%s: %d, upgraded to %q, %q", offers, resp.StatusCode, resp.Header.Get("Upgrade"), chosen)
		}
		resp.Body.Close()
	}
}

func (r *rig) websocket(path string, protocols ...string) *gwebsocket.Conn {
	r.t.Helper()
	d := gwebsocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: r.ca.pool}, Subprotocols: protocols}
	c, resp, err := d.Dial("wss://"+r.addr[server.Secure]+path, http.Header{
		"Authorization": {"Bearer token-admin"},
		"Cookie":        {"session=secret"},
		"X-Secret":      {"secret"},
	})
	if err != nil {
		body := []byte{}
		if resp != nil {
			body, _ = io.ReadAll(resp.Body)
		}
		r.t.Fatalf("dial: %v %s", err, body)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// A browser cannot set headers, so it sends its token as a WebSocket subprotocol. The token must not be passed on.
func TestTokenInSubprotocols(t *testing.T) {
	r := newRig(t)
	const hidden = "base64url.bearer.authorization.k8s.io.dG9rZW4tYWRtaW4" // token-admin
	d := gwebsocket.Dialer{
		TLSClientConfig: &tls.Config{RootCAs: r.ca.pool},
		Subprotocols:    []string{hidden, "v4.channel.k8s.io"},
	}
	c, _, err := d.Dial("wss://"+r.addr[server.Secure]+"/exec/default/web/main?command=cat&output=1&input=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.rt.mu.Lock()
	defer r.rt.mu.Unlock()
	if got := r.rt.headers[0].Get("Sec-Websocket-Protocol"); got != "v4.channel.k8s.io" || c.Subprotocol() != got {
		t.Errorf("the runtime saw subprotocols %q, the caller %q", got, c.Subprotocol())
	}
}

func TestPortForward(t *testing.T) {
	parity.Proves(t, "SRV-21")
	parity.ProvesPart(t, 6, "SRV-22")
	r := newRig(t)
	u := &url.URL{Scheme: "https", Host: r.addr[server.Secure], Path: "/portForward/default/web/uid-web"}
	tr, up, err := spdy.RoundTripperFor(r.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, r.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]interface {
		forward(*testing.T) string
	}{
		"SPDY": forwarder{func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(
				spdy.NewDialer(up, &http.Client{Transport: tr}, "POST", u),
				[]string{"0:8080"},
				stop,
				ready,
				io.Discard,
				io.Discard,
			)
		}},
		"WebSocket": forwarder{func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(tunnel, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dialer.forward(t); got != "8080:hello" {
				t.Errorf("the port answered %q", got)
			}
		})
	}
	if got := r.as("admin", "GET", "/portForward/default/web/other-uid"); got.code != 404 ||
		got.text != "pod not found" {
		t.Errorf("another UID: %d %q", got.code, got.text)
	}
	// The old WebSocket protocol has its ports in the request.
	for query, want := range map[string]string{
		"":               `query parameter "port" is required`,
		"port=":          `query parameter "port" cannot be empty`,
		"port=0":         `port "0" must be > 0`,
		"port=80,x":      `unable to parse "80,x" as a port: strconv.ParseUint: parsing "x": invalid syntax`,
		"port=1&port=-1": `unable to parse "-1" as a port: strconv.ParseUint: parsing "-1": invalid syntax`,
	} {
		got := r.ask(r.http1(), "GET", "https://"+r.addr[server.Secure]+"/portForward/default/none?"+query,
			"Authorization", "Bearer token-admin", "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-Websocket-Protocol", "v4.channel.k8s.io")
		if got.code != 400 || got.text != want {
			t.Errorf("%q: %d %q, want 400 %q", query, got.code, got.text, want)
		}
	}
	c := r.websocket("/portForward/default/web?port=80,8081", "v4.channel.k8s.io")
	// Each port has a channel for data and one for errors. The first message on each channel is the port.
	for _, want := range []string{"\x00\x50\x00", "\x01\x50\x00", "\x02\x91\x1f", "\x03\x91\x1f"} {
		if _, m, err := c.ReadMessage(); err != nil || string(m) != want {
			t.Fatalf("message %q, %v, want %q", m, err, want)
		}
	}
	if err := c.WriteMessage(gwebsocket.BinaryMessage, []byte("\x02hello")); err != nil {
		t.Fatal(err)
	}
	logged := ""
	for !strings.HasSuffix(logged, "hello") {
		_, m, err := c.ReadMessage()
		if err != nil {
			t.Fatalf("%v after %q", err, logged)
		}
		if m[0] == 2 {
			logged += string(m[1:])
		}
	}
	if logged != "8081:hello" {
		t.Errorf("the second port logged %q", logged)
	}
}

// http1 is a client that can ask for an upgrade.
func (r *rig) http1() *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.ca.pool}, DisableKeepAlives: true}
	return &http.Client{Transport: tr}
}

type forwarder struct {
	make func(stop, ready chan struct{}) (*portforward.PortForwarder, error)
}

func (f forwarder) forward(t *testing.T) string {
	stop, ready := make(chan struct{}), make(chan struct{})
	pf, err := f.make(stop, ready)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- pf.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("ForwardPorts: %v", err)
	}
	ports, err := pf.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.LimitReader(c, int64(len("8080:hello"))))
	if err != nil {
		t.Fatal(err)
	}
	close(stop)
	<-ended
	return string(got)
}

func TestStreamErrors(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-23")
	parity.ProvesPart(t, 4, "SRV-24")
	r := newRig(t)
	upgrade := []string{
		"Authorization", "Bearer token-admin", "Connection", "Upgrade", "Upgrade", "SPDY/3.1",
		"X-Stream-Protocol-Version",
		"v4.channel.k8s.io",
	}
	ask := func(path string) answer {
		return r.ask(r.http1(), "POST", "https://"+r.addr[server.Secure]+path, upgrade...)
	}
	for _, c := range []struct {
		name, path string
		code       int
		text       string
	}{
		{"a pod that is not there", "/exec/default/other/main?output=1", 404, "pod does not exist"},
		{"a pod of another namespace", "/attach/kube-system/web/main?output=1", 404, "pod does not exist"},
		{"a pod of another UID", "/attach/default/web/uid-other/main?output=1", 500, "pod web_default not found"},
		{"no stream wanted", "/exec/default/web/main?command=cat", 400,
			"you must specify at least 1 of stdin, stdout, stderr"},
		{"only stderr of a terminal", "/exec/default/web/main?error=1&tty=1", 400,
			"you must specify at least 1 of stdin, stdout, stderr"},
		{"a container that does not run", "/exec/default/web/other?output=1&command=cat", 500,
			`container not found ("other")`},
		{"an unwanted protocol version", "/exec/default/web/main?output=1&command=cat", 403, "unable to negotiate"},
	} {
		if c.code == 403 {
			upgrade[len(upgrade)-1] = "v9.channel.k8s.io"
		}
		if got := ask(c.path); got.code != c.code || !strings.Contains(got.text, c.text) {
			t.Errorf("%s: %d %q, want %d %q", c.name, got.code, got.text, c.code, c.text)
		}
	}
	for _, path := range []string{
		"/exec/default/web/main?output=1&command=cat",
		"/attach/default/web/main?output=1",
		"/portForward/default/web",
	} {
		if got := r.as("admin", "POST", path); got.code != 500 || got.text != "Upgrade request required\n" {
			t.Errorf("plain request for %s: %d %q", path, got.code, got.text)
		}
	}
}

// Redirects of the runtime are not followed.
func TestRuntimeRedirect(t *testing.T) {
	reached := make(chan struct{}, 1)
	elsewhere := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	defer elsewhere.Close()
	evil := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer evil.Close()
	target, err := url.Parse(evil.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(p *parts) { p.server.Streams = fixedTarget{target: target} })
	got := r.ask(r.http1(), "POST", "https://"+r.addr[server.Secure]+"/exec/default/web/main?output=1",
		"Authorization", "Bearer token-admin",
		"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io")
	if got.code != 500 || got.header.Get("Location") != "" || !strings.Contains(got.text, "status code 302") {
		t.Errorf("%d %q, Location %q", got.code, got.text, got.header.Get("Location"))
	}
	for name, ex := range r.executors("/exec/default/web/main", "output=1") {
		if err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil {
			t.Errorf("%s: followed a redirect", name)
		}
	}
	select {
	case <-reached:
		t.Error("the other place was asked")
	default:
	}
}

type fixedTarget struct {
	fakeStreams
	target *url.URL
}

func (f fixedTarget) Exec(context.Context, *v1.Pod, string, []string, server.StreamOptions) (*url.URL, error) {
	return f.target, nil
}

// A session ends with its client and with the server, and leaves no goroutine.
func TestStreamsEnd(t *testing.T) {
	r := newRig(t)
	path := "/exec/default/web/main"
	for _, ex := range r.executors(path, "command=cat&input=1&output=1") {
		ctx, cancel := context.WithCancel(t.Context())
		in, typed := io.Pipe()
		out := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- ex.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: firstWrite{out}})
		}()
		if _, err := typed.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		<-out // the session is established
		cancel()
		<-ended
		typed.Close()
	}
	// A session whose client stays connected is ended by the server.
	ex := r.executors(path, "command=cat&input=1&output=1")["SPDY"]
	in, typed := io.Pipe()
	out := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- ex.StreamWithContext(context.Background(), remotecommand.StreamOptions{
			Stdin:  in,
			Stdout: firstWrite{out},
		})
	}()
	if _, err := typed.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-out
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	<-ended
	typed.Close()
	await.Until(t, "the end of goroutines", func() (string, bool) { // those of libraries end on their own
		left := ours()
		return strings.Join(left, "\n\n"), len(left) == 0
	})
}

// A session ends when its client disconnects, even if the process of the session neither reads nor writes.
func TestLostClientEndsSession(t *testing.T) {
	r := newRig(t)
	c := r.websocket("/exec/default/web/main?command=wait&output=1", "v5.channel.k8s.io")
	if _, m, err := c.ReadMessage(); err != nil || string(m) != "\x01" {
		t.Fatalf("first message %q, %v", m, err)
	}
	sessions := func() int {
		n := 0
		for _, g := range ours() {
			if strings.Contains(g, "overSPDY") {
				n++
			}
		}
		return n
	}
	within := func(what string, want bool) {
		t.Helper()
		await.True(t, what, func() bool { return sessions() > 0 == want }) // only visible in the stacks of goroutines
	}
	within("the session to begin", true)
	if err := c.NetConn().Close(); err != nil {
		t.Fatal(err)
	}
	within("the session to end with its caller", false)
}

// firstWrite closes a channel at the first write.
type firstWrite struct{ seen chan struct{} }

func (f firstWrite) Write(b []byte) (int, error) {
	select {
	case <-f.seen:
	default:
		if len(b) > 0 {
			close(f.seen)
		}
	}
	return len(b), nil
}

func TestIdleStreamIsClosed(t *testing.T) {
	r := newRig(t, func(p *parts) { p.server.StreamIdleTimeout = 100 * time.Millisecond })
	c := r.websocket("/exec/default/web/main?command=wait&output=1", "v4.channel.k8s.io")
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			return // a hang would end the test with its time limit
		}
	}
}

func TestRun(t *testing.T) {
	parity.Proves(t, "SRV-18")
	r := newRig(t)
	got := r.as("admin", "POST", "/run/default/web/main?cmd=ls+-l+/")
	if got.code != 200 || got.text != "web|ls|-l|/" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %q %v", got.code, got.text, got.header)
	}
	if got := r.as("admin", "POST", "/run/default/web/uid-web/other?cmd=ls"); got.code != 500 ||
		got.text != `container not found ("other")` {
		t.Errorf("missing container: %d %q", got.code, got.text)
	}
	if got := r.as("admin", "POST", "/run/default/other/main?cmd=ls"); got.code != 404 ||
		got.text != "pod does not exist" {
		t.Errorf("missing pod: %d %q", got.code, got.text)
	}
	if got := r.as("admin", "GET", "/run/default/web/main?cmd=ls"); got.code != 405 {
		t.Errorf("GET: %d", got.code)
	}
}
