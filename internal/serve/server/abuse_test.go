package server_test

import (
	"bufio"
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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/serve/server"
	"keelson/internal/serve/server/access"
)

// h2 is a connection on which frames are written by hand.
type h2 struct {
	*http2.Framer
	conn     net.Conn
	settings map[http2.SettingID]uint32 // the server's

	text    bytes.Buffer
	encoder *hpack.Encoder
}

// http2 opens a connection and exchanges settings.
func (r *rig) http2() *h2 {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.addr[server.Secure], &tls.Config{RootCAs: r.ca.pool, NextProtos: []string{"h2"}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		r.t.Fatal(err)
	}
	c := &h2{Framer: http2.NewFramer(conn, conn), conn: conn, settings: map[http2.SettingID]uint32{}}
	c.encoder = hpack.NewEncoder(&c.text)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	if err := c.WriteSettings(); err != nil {
		r.t.Fatal(err)
	}
	for {
		f, err := c.ReadFrame()
		if err != nil {
			r.t.Fatal(err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			if err := s.ForeachSetting(func(s http2.Setting) error { c.settings[s.ID] = s.Val; return nil }); err != nil {
				r.t.Fatal(err)
			}
			if err := c.WriteSettingsAck(); err != nil {
				r.t.Fatal(err)
			}
			return c
		}
	}
}

// header encodes the headers of a request.
func (c *h2) header(path string) []byte {
	c.text.Reset()
	for _, f := range [][2]string{
		{":method", "GET"},
		{":scheme", "https"},
		{":authority", "node"},
		{":path", path},
		{"authorization", "Bearer token-admin"},
	} {
		// The buffer takes everything.
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return c.text.Bytes()
}

// goodbye reads until the server ends the connection, and returns why.
func (c *h2) goodbye() (why http2.ErrCode, logged bool) {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return why, logged
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			why, logged = g.ErrCode, true
		}
	}
}

// held returns a server with an endpoint that blocks until release is called, and the maximum number of concurrent
// requests.
func held(t *testing.T) (r *rig, peak *atomic.Int64, inside <-chan struct{}, release func()) {
	peak = new(atomic.Int64)
	var now atomic.Int64
	hold, begun := make(chan struct{}), make(chan struct{}, 10_000)
	r = newRig(t, func(p *parts) {
		p.server.Authorizer = access.AlwaysAllow{} // no access reviews to wait for
		p.server.RunningPods = func(context.Context) ([]*v1.Pod, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for seen := peak.Load(); n > seen && !peak.CompareAndSwap(seen, n); seen = peak.Load() {
			}
			begun <- struct{}{}
			<-hold // also if the client is gone: not all work is cancelled with the request
			return nil, nil
		}
	})
	return r, peak, begun, func() { close(hold) }
}

// TestRapidReset opens requests and cancels them at once, as in CVE-2023-44487: the number of running handlers is
// bounded, and the connection is closed.
func TestRapidReset(t *testing.T) {
	r, peak, _, release := held(t)
	// The token review is cached first, so that no request is cancelled before its handler runs.
	if got := r.as("admin", "GET", "/pods"); got.code != 200 {
		t.Fatalf("GET /pods: %d", got.code)
	}
	c := r.http2()
	gone := make(chan http2.ErrCode, 1)
	go func() {
		why, _ := c.goodbye()
		gone <- why
	}()
	id := uint32(1)
	for range 100_000 {
		if err := c.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      id,
			BlockFragment: c.header("/runningpods/"),
			EndStream:     true,
			EndHeaders:    true,
		}); err != nil {
			break
		}
		if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			break
		}
		id += 2
	}
	if why := <-gone; why != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("after %d requests that were taken back the server says %v", id/2, why)
	}
	if n := peak.Load(); n == 0 || n > server.MaxHTTP2Streams {
		t.Errorf("%d requests were worked on at a time, want at most %d", n, server.MaxHTTP2Streams)
	}
	if got := r.as("admin", "GET", "/healthz"); got.code != 200 {
		t.Errorf("another caller gets %d", got.code)
	}
	release()
}

// TestStreamLimit opens more requests on one connection than it may have.
func TestStreamLimit(t *testing.T) {
	r, peak, inside, release := held(t)
	c := r.http2()
	if got := c.settings[http2.SettingMaxConcurrentStreams]; got != server.MaxHTTP2Streams {
		t.Errorf("the server announces %d streams, want %d", got, server.MaxHTTP2Streams)
	}
	const more = 20
	for i := range uint32(server.MaxHTTP2Streams + more) {
		if err := c.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      2*i + 1,
			BlockFragment: c.header("/runningpods/"),
			EndStream:     true,
			EndHeaders:    true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for refused < more {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("%d were refused: %v", refused, err)
		}
		if rst, ok := f.(*http2.RSTStreamFrame); ok &&
			(rst.ErrCode == http2.ErrCodeRefusedStream || rst.ErrCode == http2.ErrCodeProtocol) {
			refused++
		}
	}
	for range server.MaxHTTP2Streams {
		<-inside
	}
	if n := peak.Load(); n != server.MaxHTTP2Streams {
		t.Errorf("%d requests were worked on at a time, want %d", n, server.MaxHTTP2Streams)
	}
	release()
}

// TestContinuationFlood sends headers that never end, as in CVE-2023-45288: the server closes the connection soon after
// the size limit of headers.
func TestContinuationFlood(t *testing.T) {
	r := newRig(t)
	c := r.http2()
	const most = 8 << 20
	why := make(chan http2.ErrCode, 1)
	go func() {
		code, _ := c.goodbye()
		why <- code
	}()
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.header("/healthz")}); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for sent < most {
		c.text.Reset()
		_ = c.encoder.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", sent), Value: strings.Repeat("x", 12<<10)})
		if err := c.WriteContinuation(1, false, c.text.Bytes()); err != nil {
			break
		}
		sent += c.text.Len()
	}
	if sent >= most {
		t.Errorf("the server took %d bytes of headers", sent)
	}
	<-why // the connection ended, whatever the reason
	if got := r.as("admin", "GET", "/healthz"); got.code != 200 {
		t.Errorf("another caller gets %d", got.code)
	}
}

// TestHeadersOverHTTP2AreBounded: complete headers above the size limit are rejected.
func TestHeadersOverHTTP2AreBounded(t *testing.T) {
	r := newRig(t)
	req, err := http.NewRequest("GET", "https://"+r.addr[server.Secure]+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-admin")
	req.Header.Set("X-Big", strings.Repeat("x", 2<<20))
	resp, err := r.client().Do(req)
	if err != nil {
		return // the server closed the connection, or the client checked the limit itself
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s %d, want 431", resp.Proto, resp.StatusCode)
	}
}

// endless is a body that continues for as long as it is read.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '1'
	}
	e.read.Add(int64(len(b)))
	return len(b), nil
}

// TestEndlessBody: no endpoint reads an endless body, even with all rights.
func TestEndlessBody(t *testing.T) {
	r := newRig(t)
	for _, row := range server.Table() {
		for _, method := range []string{"POST", "PUT", "GET"} {
			body := &endless{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			req, err := http.NewRequestWithContext(ctx, method, "https://"+r.addr[server.Secure]+sample(row.Pattern),
				body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer token-admin")
			resp, err := r.http1().Do(req)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s %s does not answer while a body comes", method, row.Pattern)
			}
			if err == nil {
				resp.Body.Close()
			}
			cancel()
			// Buffers on both sides add to what the endpoint reads.
			if n := body.read.Load(); n > 24<<20 {
				t.Errorf("%s %s took %d bytes", method, row.Pattern, n)
			}
		}
	}
}

// TestRefusedUpgrade reproduces CVE-2018-1002105: after the runtime has rejected an upgrade, the next data on the
// connection is a new request to this server. It does not reach the runtime with the rights of the previous request.
func TestRefusedUpgrade(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusFound, http.StatusForbidden,
		http.StatusInternalServerError} {
		var asked atomic.Int64
		runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(status)
		}))
		defer runtime.Close()
		target, err := url.Parse(runtime.URL)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(p *parts) { p.server.Streams = fixedTarget{target: target} })
		conn, err := tls.Dial("tcp", r.addr[server.Secure], &tls.Config{
			RootCAs:    r.ca.pool,
			NextProtos: []string{"http/1.1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		// Both requests are sent at once. The second one must not be taken for the stream of the first.
		fmt.Fprintf(
			conn,
			"POST /exec/default/web/main?output=1 HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer token-admin\r\nConnection: "+
				"Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"+
				"GET /stolen HTTP/1.1\r\nHost: node\r\n\r\n",
		)
		read := bufio.NewReader(conn)
		first, err := http.ReadResponse(read, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, first.Body); err != nil {
			t.Fatal(err)
		}
		if first.StatusCode < 400 || first.Header.Get("Location") != "" {
			t.Errorf("runtime says %d: answered %d, Location %q", status, first.StatusCode,
				first.Header.Get("Location"))
		}
		second, err := http.ReadResponse(read, nil)
		if err == nil && second.StatusCode != http.StatusUnauthorized {
			t.Errorf("runtime says %d: the second request is answered %d, want 401 or the end of the connection",
				status, second.StatusCode)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("runtime says %d: it was asked %d times", status, n)
		}
	}
}
