package tracing

import (
	"context"
	"net/http"
	"path"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Calls makes a span of each call over a connection, and propagates it.
func (s *Spans) Calls(conn grpc.ClientConnInterface) grpc.ClientConnInterface {
	return tracedConn{conn, s}
}

type tracedConn struct {
	grpc.ClientConnInterface
	*Spans
}

func (c tracedConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, span := c.call(ctx, method)
	defer span.End()
	err := c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	span.SetAttributes(keyRPCCode.Int(int(status.Code(err))))
	if err != nil {
		span.SetStatus(codes.Error, status.Convert(err).Message())
	}
	return err
}

// NewStream makes a span of opening the stream only: event streams last as long as the agent.
func (c tracedConn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, span := c.call(ctx, method)
	defer span.End()
	stream, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return stream, err
}

func (s *Spans) call(ctx context.Context, method string) (context.Context, trace.Span) {
	name := strings.TrimPrefix(method, "/")
	ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(keyRPCSystem.String("grpc"), keyRPCService.String(path.Dir(name)),
			keyRPCMethod.String(path.Base(name))))
	carried := propagation.MapCarrier{}
	s.propagator.Inject(ctx, carried)
	for k, v := range carried {
		ctx = metadata.AppendToOutgoingContext(ctx, k, v)
	}
	return ctx, span
}

// Request starts the span of a served request, as part of the caller's trace. The span is named by the route, because
// the number of paths is unbounded. The returned function ends the span with the status of the response.
func (s *Spans) Request(r *http.Request, route string) (*http.Request, func(status int)) {
	ctx := s.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := s.tracer.Start(ctx, route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(keyMethod.String(r.Method), keyRoute.String(route), keyURL.String(r.URL.Path)))
	return r.WithContext(ctx), func(status int) {
		span.SetAttributes(keyStatus.Int(status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Transport makes a span of each request sent through next.
func (s *Spans) Transport(next http.RoundTripper) http.RoundTripper { return tracedTransport{next, s} }

type tracedTransport struct {
	http.RoundTripper
	*Spans
}

func (t tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.tracer.Start(r.Context(), "HTTP "+r.Method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(keyMethod.String(r.Method), keyServer.String(r.URL.Host), keyURL.String(r.URL.Path)))
	defer span.End() // after the header, because a watch lasts for minutes
	r = r.Clone(ctx)
	t.propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return resp, err
	}
	span.SetAttributes(keyStatus.Int(resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return resp, nil
}

// WrappedRoundTripper returns the wrapped transport.
func (t tracedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
