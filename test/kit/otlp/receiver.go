// Package otlp is a collector of spans for tests: it receives OTLP over gRPC on a port of
// this machine.
package otlp

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Span is a span that has arrived.
type Span struct {
	*tracepb.Span
	Resource map[string]string
}

// Attr is the value of an attribute as text; "" if the span has none of that name.
func (s Span) Attr(name string) string { return attributes(s.Attributes)[name] }

// Receiver keeps the spans that it is sent.
type Receiver struct {
	Addr string

	mu      sync.Mutex
	spans   []Span
	refuse  int64 // how many spans of each request it reports as rejected
	arrived chan struct{}
}

// Listen starts a receiver, which ends with the test.
func Listen(t testing.TB) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{Addr: l.Addr().String(), arrived: make(chan struct{})}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Export", Handler: r.export}}}, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(func() { s.Stop(); <-done })
	return r
}

// Refuse makes the receiver report n spans of each request as rejected.
func (r *Receiver) Refuse(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = n
}

func (r *Receiver) export(
	_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	var req tracepb.TracesData // the same on the wire as a request
	if err := decode(&req); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, from := range req.ResourceSpans {
		about := attributes(from.GetResource().GetAttributes())
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{s, about})
			}
		}
	}
	close(r.arrived)
	r.arrived = make(chan struct{})
	answer := &emptypb.Empty{}
	if r.refuse > 0 {
		var partial []byte
		partial = protowire.AppendTag(partial, 1, protowire.VarintType)
		partial = protowire.AppendVarint(partial, uint64(r.refuse))
		partial = protowire.AppendTag(partial, 2, protowire.BytesType)
		partial = protowire.AppendString(partial, "too many")
		answer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType),
			partial))
	}
	return answer, nil
}

// Spans are all that have arrived.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Wait returns the first span that is wanted, once it has arrived.
func (r *Receiver) Wait(t testing.TB, what string, wanted func(Span) bool) Span {
	t.Helper()
	patience := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		spans, arrived := r.spans, r.arrived
		r.mu.Unlock()
		for _, s := range spans {
			if wanted(s) {
				return s
			}
		}
		select {
		case <-arrived:
		case <-patience:
			var names []string
			for _, s := range spans {
				names = append(names, s.Name)
			}
			t.Fatalf("%s: no such span among %s", what, strings.Join(names, ", "))
		}
	}
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[kv.Key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return out
}
