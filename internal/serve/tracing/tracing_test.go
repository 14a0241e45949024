package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"keelson/test/kit/otlp"
	"keelson/test/kit/parity"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// sending returns Spans that are exported to a receiver; stop returns when all were sent.
func sending(t *testing.T, r *otlp.Receiver, perMillion int32) (s *Spans, log *lines, stop func()) {
	t.Helper()
	log = &lines{}
	s, err := New(Config{
		Endpoint:   r.Addr,
		PerMillion: perMillion,
		Host:       "node-1",
		Version:    "v1.36.3",
		Log:        slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return s, log, sync.OnceFunc(func() { cancel(); <-done })
}

// conn returns err for each call and records the trace metadata of the call.
type conn struct {
	grpc.ClientConnInterface
	err  error
	sent metadata.MD
}

func (c *conn) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	c.sent, _ = metadata.FromOutgoingContext(ctx)
	return c.err
}

func (c *conn) NewStream(
	ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c.sent, _ = metadata.FromOutgoingContext(ctx)
	return nil, c.err
}

// A trace is propagated from a client of the server through the agent to the runtime and to the API server.
func TestTracePropagation(t *testing.T) {
	parity.Proves(t, "SRV-36")
	r := otlp.Listen(t)
	s, _, stop := sending(t, r, 0)
	defer stop()
	const traceID, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	runtime := &conn{}
	var api http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		api = r.Header
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	ask := func(flags string) {
		t.Helper()
		req := httptest.NewRequest(http.MethodGet, "/exec/ns/web/main?command=secret", nil)
		req.Header.Set("traceparent", "00-"+traceID+"-"+caller+"-"+flags)
		req, end := s.Request(req, "/exec/{ns}/{pod}/{container}")
		if err := s.Calls(runtime).Invoke(req.Context(), "/runtime.v1.RuntimeService/Exec", nil, nil); err != nil {
			t.Fatal(err)
		}
		out, err := http.NewRequestWithContext(req.Context(), http.MethodPatch, server.URL+"/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Transport(http.DefaultTransport).RoundTrip(out)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		end(http.StatusSwitchingProtocols)
	}
	// With a sampling rate of zero no trace starts here, and traces that are not sampled are not exported.
	_, span := s.Tracer().Start(t.Context(), "own")
	span.End()
	ask("00")
	ask("01")
	stop()
	spans := map[string]otlp.Span{}
	for _, sp := range r.Spans() {
		if _, twice := spans[sp.Name]; twice {
			t.Errorf("two spans %s", sp.Name)
		}
		spans[sp.Name] = sp
	}
	if len(spans) != 3 {
		t.Fatalf("spans %v, want three", spans)
	}
	request, call, patch := spans["/exec/{ns}/{pod}/{container}"], spans["runtime.v1.RuntimeService/Exec"],
		spans["HTTP PATCH"]
	if hex(request.TraceId) != traceID || hex(request.ParentSpanId) != caller ||
		request.Kind != tracepb.Span_SPAN_KIND_SERVER ||
		request.Attr("http.response.status_code") != "101" || request.Attr("url.path") != "/exec/ns/web/main" ||
		strings.Contains(request.String(), "secret") {
		t.Errorf("request %v", request)
	}
	if !bytes.Equal(call.ParentSpanId, request.SpanId) || call.Kind != tracepb.Span_SPAN_KIND_CLIENT ||
		call.Attr("rpc.method") != "Exec" ||
		call.Attr("rpc.service") != "runtime.v1.RuntimeService" || call.Attr("rpc.grpc.status_code") != "0" {
		t.Errorf("call %v", call)
	}
	if got := runtime.sent.Get("traceparent"); len(got) != 1 || got[0] != "00-"+traceID+"-"+hex(call.SpanId)+"-01" {
		t.Errorf("the runtime got traceparent %q", got)
	}
	if !bytes.Equal(patch.ParentSpanId, request.SpanId) ||
		api.Get("traceparent") != "00-"+traceID+"-"+hex(patch.SpanId)+"-01" ||
		patch.Attr("http.response.status_code") != "409" || patch.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("request to the API server %v, traceparent %q", patch, api.Get("traceparent"))
	}
	if request.Resource["service.name"] != "kubelet" || request.Resource["host.name"] != "node-1" ||
		request.Resource["service.version"] != "v1.36.3" {
		t.Errorf("resource %v", request.Resource)
	}
}

func hex(id []byte) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range id {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func TestDefaultEndpoint(t *testing.T) {
	s, err := New(Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.client.conn.CanonicalTarget(); !strings.HasSuffix(got, "/localhost:4317") {
		t.Errorf("spans go to %s", got)
	}
	if err := s.client.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSamplingRate(t *testing.T) {
	r := otlp.Listen(t)
	s, _, stop := sending(t, r, 250_000)
	defer stop()
	const n = 1000 // fits the queue
	for range n {
		_, span := s.Tracer().Start(t.Context(), "own")
		span.End()
	}
	stop()
	// The chance to be outside of this is below one in a million.
	if got := len(r.Spans()); got < 180 || got > 320 {
		t.Errorf("%d of %d were recorded, want a quarter", got, n)
	}
}

func TestSpansOfFailedCalls(t *testing.T) {
	r := otlp.Listen(t)
	s, _, stop := sending(t, r, 1_000_000)
	defer stop()
	broken := s.Calls(&conn{err: status.Error(codes.Unavailable, "away")})
	_ = broken.Invoke(t.Context(), "/runtime.v1.RuntimeService/Version", nil, nil)
	_, _ = broken.NewStream(t.Context(), &grpc.StreamDesc{}, "/runtime.v1.RuntimeService/GetContainerEvents")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Transport(lost{}).RoundTrip(req); !errors.Is(err, errLost) {
		t.Errorf("the error is %v", err)
	}
	_, end := s.Request(httptest.NewRequest(http.MethodGet, "/pods", nil), "/pods")
	end(http.StatusInternalServerError)
	stop()
	spans := r.Spans()
	if len(spans) != 4 {
		t.Fatalf("%d spans", len(spans))
	}
	for _, sp := range spans {
		if sp.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || len(sp.ParentSpanId) != 0 {
			t.Errorf("%s: status %v, parent %x", sp.Name, sp.Status, sp.ParentSpanId)
		}
	}
}

var errLost = errors.New("connection lost")

type lost struct{}

func (lost) RoundTrip(*http.Request) (*http.Response, error) { return nil, errLost }

func TestRejectedSpansAreLogged(t *testing.T) {
	r := otlp.Listen(t)
	r.Refuse(1)
	s, log, stop := sending(t, r, 1_000_000)
	_, span := s.Tracer().Start(t.Context(), "own")
	span.End()
	stop()
	if text := log.b.String(); !strings.Contains(text, "the collector rejected 1: too many") {
		t.Errorf("log %q", text)
	}
}

// If the collector is unavailable, spans are lost, and nothing blocks.
func TestUnavailableCollectorDoesNotBlock(t *testing.T) {
	r := &otlp.Receiver{Addr: "127.0.0.1:1"}
	s, log, stop := sending(t, r, 1_000_000)
	for range 10_000 { // more than the queue holds
		_, span := s.Tracer().Start(t.Context(), "own", trace.WithSpanKind(trace.SpanKindInternal))
		span.End()
	}
	stop()
	if text := log.b.String(); !strings.Contains(text, "failed to export") {
		t.Errorf("log %q", text)
	}
}

// exporter returns err.
type exporter struct {
	sdk.SpanExporter
	err error
}

func (e *exporter) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return e.err }

// Failures of a collector are logged when they begin, and the number of lost spans when they end, because batches are
// sent every few seconds.
func TestUnavailableCollectorIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	e := &exporter{}
	s := &loggingExporter{SpanExporter: e, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, err := range []error{nil, errLost, errLost, errLost, nil, nil, errLost} {
		e.err = err
		if err := s.ExportSpans(t.Context(), make([]sdk.ReadOnlySpan, 2)); err != nil {
			t.Error(err)
		}
	}
	var logged []string
	for line := range strings.Lines(log.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "level=")
		logged = append(logged, text)
	}
	want := []string{
		`WARN msg="failed to export spans" spans=2 err="connection lost"`, `INFO msg="exporting spans again" lost=6`,
		`WARN msg="failed to export spans" spans=2 err="connection lost"`,
	}
	if !slices.Equal(logged, want) {
		t.Errorf("logged %q, want %q", logged, want)
	}
}

// Any response of a collector can be parsed.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0x0a, 0x04, 0x08, 0x02, 0x12, 0x00})
	f.Add([]byte{0x0a, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, why := rejectedSpans(b); len(why) > len(b) {
			t.Errorf("%d bytes of reason from %d", len(why), len(b))
		}
	})
}
