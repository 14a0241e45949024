package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config holds what Spans are built from.
type Config struct {
	Endpoint string // host:port of the collector; DefaultEndpoint if empty
	// PerMillion is how many of a million traces that begin here are recorded.
	// What another has begun is recorded if that one is.
	PerMillion int32
	Host       string // name of this machine
	Version    string // of the agent
	Log        *slog.Logger
}

// Spans makes spans and sends them.
type Spans struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	carry    propagation.TextMapPropagator
	client   *client
	log      *slog.Logger
}

// farewell is how long the last spans may take on the way out.
const farewell = 2 * time.Second

// New prepares the sending; the collector is first spoken to when there is
// something to send.
func New(cfg Config) (*Spans, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = DefaultEndpoint
	}
	client, err := newClient(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("prepare tracing to %s: %w", cfg.Endpoint, err)
	}
	about := resource.NewSchemaless(keyService.String(serviceName), keyHost.String(cfg.Host), keyVersion.String(cfg.Version))
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(float64(cfg.PerMillion)/1e6))),
		sdk.WithResource(about),
		sdk.WithBatcher(&told{SpanExporter: otlptrace.NewUnstarted(client), log: cfg.Log}))
	return &Spans{provider: provider, tracer: provider.Tracer("keelson"), client: client, log: cfg.Log,
		carry: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}, nil
}

// Tracer makes the spans of the agent's own work.
func (s *Spans) Tracer() trace.Tracer { return s.tracer }

// Run waits until ctx ends and sends what is left.
func (s *Spans) Run(ctx context.Context) error {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := s.provider.Shutdown(last); err != nil {
		s.log.Warn("cannot send the last spans", "err", err)
	}
	return nil
}

// told is an exporter whose failures go to the log of the agent, and not to that of the
// library: when they begin, and with what was lost when they are over.
type told struct {
	sdk.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	lost int // since it began
}

func (t *told) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && t.lost > 0:
		t.log.Info("spans are sent again", "lost", t.lost)
		t.lost = 0
	case err != nil:
		if t.lost == 0 {
			t.log.Warn("cannot send spans; they are lost", "spans", len(spans), "err", err)
		}
		t.lost += len(spans)
	}
	return nil
}
