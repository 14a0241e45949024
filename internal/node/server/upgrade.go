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
	// upgradeTimeout is how long a runtime may take to accept a connection and
	// to answer it; both are local.
	upgradeTimeout = 30 * time.Second
	// maxRefusal is how much is passed on of a runtime's reason not to upgrade.
	maxRefusal = 64 << 10
)

// passedHeaders reach the runtime. Credentials of the caller do not.
var passedHeaders = []string{
	httpstream.HeaderConnection, httpstream.HeaderUpgrade, httpstream.HeaderProtocolVersion,
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Origin", "User-Agent",
}

// proxy joins the caller's connection to the runtime's, whatever protocol they
// agree on.
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
		// HTTP/2 has no connection to take over.
		writeText(w, http.StatusBadRequest, textUpgradeRequired+": "+err.Error())
		return
	}
	defer front.Close()
	// The deadlines of the server's requests do not hold for streams.
	if err := front.SetDeadline(time.Time{}); err != nil {
		return // closed already
	}
	resp.Body = http.NoBody
	if err := resp.Write(front); err != nil {
		return // closed already
	}
	join(r.Context(), bufferedConn{front, buffered.Reader}, back, s.cfg.StreamIdleTimeout)
}

// writeRefusal passes on why the runtime did not upgrade. A redirect is never
// followed nor passed on: it would send the caller, or this agent, to wherever
// the other side likes.
func writeRefusal(w http.ResponseWriter, resp *http.Response) {
	if resp.StatusCode < 400 {
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("invalid upgrade response: status code %d", resp.StatusCode))
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

// dialUpgrade sends an upgrade request and returns the connection with the
// answer to it; the body of a refusal is read through the connection, so it
// must be read before that is closed.
func dialUpgrade(ctx context.Context, method string, target *url.URL, header http.Header) (net.Conn, *http.Response, error) {
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
		return nil, nil, fmt.Errorf("ask runtime for a stream: %w", err)
	}
	return bufferedConn{conn, br}, resp, nil
}

// bufferedConn reads first what was read ahead.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c bufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// join copies both ways until one side ends, ctx ends, or nothing has passed
// for the idle time (zero: for ever). Then both are closed; join returns when
// nothing of it runs any more.
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
			// One side's end is the session's: the protocols inside close their
			// streams themselves. What went wrong is the peers' affair.
			defer end()
			_, _ = io.Copy(noticed{way[0], moved}, way[1])
		})
	}
	both.Wait()
}

// noticed tells of each write.
type noticed struct {
	w     io.Writer
	moved func()
}

func (n noticed) Write(b []byte) (int, error) {
	n.moved()
	return n.w.Write(b)
}

// subprotocols are those a WebSocket caller offers.
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
