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

// Config holds the configuration of Spans.
type Config struct {
	Endpoint string // host:port of the collector; DefaultEndpoint if empty
	// PerMillion is the sampling rate of traces that start here. Other traces are sampled if their parent is.
	PerMillion int32
	Host       string // name of this machine
	Version    string // of the agent
	Log        *slog.Logger
}

// Spans makes and exports spans.
type Spans struct {
	provider   *sdk.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	client     *client
	log        *slog.Logger
}

// shutdownTimeout is the timeout of the last export.
const shutdownTimeout = 2 * time.Second

// New returns Spans. The collector is not contacted before the first export.
func New(cfg Config) (*Spans, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = DefaultEndpoint
	}
	client, err := newClient(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("prepare tracing to %s: %w", cfg.Endpoint, err)
	}
	attributes := resource.NewSchemaless(keyService.String(serviceName), keyHost.String(cfg.Host),
		keyVersion.String(cfg.Version))
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(float64(cfg.PerMillion)/1e6))),
		sdk.WithResource(attributes),
		sdk.WithBatcher(&loggingExporter{SpanExporter: otlptrace.NewUnstarted(client), log: cfg.Log}))
	return &Spans{
		provider:   provider,
		tracer:     provider.Tracer("keelson"),
		client:     client,
		log:        cfg.Log,
		propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	}, nil
}

// Tracer returns the tracer for the agent's own work.
func (s *Spans) Tracer() trace.Tracer { return s.tracer }

// Run exports the remaining spans when ctx ends.
func (s *Spans) Run(ctx context.Context) error {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.provider.Shutdown(last); err != nil {
		s.log.Warn("failed to export remaining spans", "err", err)
	}
	return nil
}

// loggingExporter is an exporter that logs failures with the agent's logger: when they begin, and the number of lost
// spans when they end.
type loggingExporter struct {
	sdk.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	lost int // since failures began
}

func (t *loggingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && t.lost > 0:
		t.log.Info("exporting spans again", "lost", t.lost)
		t.lost = 0
	case err != nil:
		if t.lost == 0 {
			t.log.Warn("failed to export spans", "spans", len(spans), "err", err)
		}
		t.lost += len(spans)
	}
	return nil
}
