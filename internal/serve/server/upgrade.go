package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
)

const (
	// upgradeTimeout is how long the runtime, which is local, may take to accept and answer a connection.
	upgradeTimeout = 30 * time.Second
	// maxRefusal is the maximum size of an error response of the runtime that is passed on.
	maxRefusal = 64 << 10
)

// passedHeaders are passed on to the runtime. Credentials are not.
var passedHeaders = []string{
	httpstream.HeaderConnection, httpstream.HeaderUpgrade, httpstream.HeaderProtocolVersion,
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Origin", "User-Agent",
}

// proxy joins the client's connection to the runtime's, regardless of the protocol.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, target *url.URL) {
	header := http.Header{}
	for _, k := range passedHeaders {
		if v := r.Header.Values(k); len(v) > 0 {
			header[http.CanonicalHeaderKey(k)] = v
		}
	}
	back, resp, err := dialUpgrade(r.Context(), r.Method, target, header)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer back.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		writeRefusal(w, resp)
		return
	}
	front, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		// HTTP/2 connections cannot be hijacked.
		writeText(w, http.StatusBadRequest, textUpgradeRequired+": "+err.Error())
		return
	}
	defer front.Close()
	// The deadlines of requests do not apply to streams.
	if err := front.SetDeadline(time.Time{}); err != nil {
		return // closed already
	}
	resp.Body = http.NoBody
	if err := resp.Write(front); err != nil {
		return // closed already
	}
	join(r.Context(), bufferedConn{front, buffered.Reader}, back, s.cfg.StreamIdleTimeout)
}

// writeRefusal passes on an error response of the runtime. Redirects are neither followed nor passed on, because the
// runtime could redirect the client or the agent to any address.
func writeRefusal(w http.ResponseWriter, resp *http.Response) {
	if resp.StatusCode < 400 {
		writeText(w, http.StatusInternalServerError,
			fmt.Sprintf("invalid upgrade response: status code %d", resp.StatusCode))
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		writeText(w, http.StatusInternalServerError, "read answer of runtime: "+err.Error())
		return
	}
	for _, k := range []string{httpstream.HeaderAcceptedProtocolVersions, "Retry-After"} {
		for _, v := range resp.Header.Values(k) {
			w.Header().Add(k, v)
		}
	}
	writeText(w, resp.StatusCode, string(body))
}

// dialUpgrade sends an upgrade request and returns the connection and the response. The body of an error response is
// read through the connection, so it has to be read before the connection is closed.
func dialUpgrade(
	ctx context.Context, method string, target *url.URL, header http.Header,
) (net.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	addr := target.Host
	if target.Port() == "" {
		addr = net.JoinHostPort(target.Hostname(), map[string]string{"http": "80", "https": "443"}[target.Scheme])
	}
	var conn net.Conn
	var err error
	switch target.Scheme {
	case "http":
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	case "https":
		conn, err = (&tls.Dialer{}).DialContext(ctx, "tcp", addr)
	default:
		return nil, nil, fmt.Errorf("dial runtime: unknown scheme in %q", target.Redacted())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("dial runtime: %w", err)
	}
	deadline, _ := ctx.Deadline()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	br := bufio.NewReader(conn)
	req := (&http.Request{Method: method, URL: target, Host: target.Host, Header: header}).WithContext(ctx)
	var resp *http.Response
	if err = conn.SetDeadline(deadline); err == nil {
		if err = req.Write(conn); err == nil {
			resp, err = http.ReadResponse(br, req)
		}
	}
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("request stream from runtime: %w", err)
	}
	return bufferedConn{conn, br}, resp, nil
}

// bufferedConn reads buffered data first.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c bufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// join copies in both directions until one side ends, ctx ends, or the connection is idle for the given time (zero: no
// limit). Then it closes both and returns when both goroutines have ended.
func join(ctx context.Context, front, back net.Conn, idle time.Duration) {
	var once sync.Once
	end := func() {
		once.Do(func() {
			front.Close()
			back.Close()
		})
	}
	defer end()
	defer context.AfterFunc(ctx, end)()
	moved := func() {}
	if idle > 0 {
		t := time.AfterFunc(idle, end)
		defer t.Stop()
		moved = func() { t.Reset(idle) }
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{front, back}, {back, front}} {
		both.Go(func() {
			// The end of one side ends the session, because the protocols inside close their streams themselves.
			// Errors are for the peers to handle.
			defer end()
			_, _ = io.Copy(activityWriter{way[0], moved}, way[1])
		})
	}
	both.Wait()
}

// activityWriter calls moved for each write.
type activityWriter struct {
	w     io.Writer
	moved func()
}

func (n activityWriter) Write(b []byte) (int, error) {
	n.moved()
	return n.w.Write(b)
}

// subprotocols returns the WebSocket subprotocols that the client offers.
func subprotocols(r *http.Request) []string {
	var out []string
	for _, line := range r.Header.Values("Sec-Websocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}
