// Package memhttp lets an HTTP client talk to a handler of the same process
// without a network, streams included, so that both fit in a testing/synctest
// bubble.
package memhttp

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// Transport returns a RoundTripper that answers requests with h. RoundTrip returns
// as soon as the handler writes its header; the client can read each write to the body
// at once. A handler that panics with http.ErrAbortHandler breaks the
// connection: to the client that is io.EOF before the header and
// io.ErrUnexpectedEOF in the body, as over a network.
func Transport(h http.Handler) http.RoundTripper { return transport{h} }

type transport struct{ h http.Handler }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	pr, pw := io.Pipe()
	w := &writer{header: http.Header{}, pipe: pw, ready: make(chan struct{})}
	in := req.Clone(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RequestURI = in.URL.RequestURI()
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	in.RemoteAddr = "127.0.0.1:1"
	go func() {
		defer cancel()
		err := io.ErrUnexpectedEOF
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			w.finish(err)
		}()
		t.h.ServeHTTP(w, in)
		err = nil
	}()

	select {
	case <-w.ready:
	case <-req.Context().Done():
		cancel()
		pr.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
	if w.brokenOff() {
		cancel()
		return nil, io.EOF
	}
	return &http.Response{
		StatusCode: w.code, Status: http.StatusText(w.code), Header: w.sent,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: &body{pr, cancel}, ContentLength: -1, Request: req,
	}, nil
}

// body ends the handler's context when the client closes it.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *body) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// writer is the handler's side.
type writer struct {
	pipe   *io.PipeWriter
	header http.Header // the handler's, until WriteHeader
	ready  chan struct{}

	mu   sync.Mutex
	code int
	sent http.Header
	eof  bool // the handler broke off before its header
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.code != 0 || w.eof || code < 200 {
		return
	}
	w.code, w.sent = code, w.header.Clone()
	close(w.ready)
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(b)
}

// Flush sends the header; the body is not buffered.
func (w *writer) Flush() { w.WriteHeader(http.StatusOK) }

func (w *writer) finish(err error) {
	w.mu.Lock()
	started := w.code != 0
	if !started && err != nil {
		w.eof = true
		close(w.ready)
	}
	w.mu.Unlock()
	if !started && err == nil {
		w.WriteHeader(http.StatusOK)
	}
	w.pipe.CloseWithError(err) // nil is io.EOF
}

func (w *writer) brokenOff() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.eof
}
