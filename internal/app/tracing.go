package app

import (
	"go.opentelemetry.io/otel/trace"

	"keelson/internal/node/tracing"
)

// buildTracing prepares the sending of spans if the configuration asks for it.
// Otherwise no part knows of spans.
func (a *agent) buildTracing() error {
	t := a.cfg.Kubelet.Tracing
	if t == nil {
		return nil
	}
	cfg := tracing.Config{Host: a.cfg.NodeName, Version: a.cfg.Version, Log: a.log}
	if t.Endpoint != nil {
		cfg.Endpoint = *t.Endpoint
	}
	if t.SamplingRatePerMillion != nil {
		cfg.PerMillion = *t.SamplingRatePerMillion
	}
	var err error
	a.spans, err = tracing.New(cfg)
	return err
}

// tracer makes spans of what the agent does by itself; nil if nothing is traced.
func (a *agent) tracer() trace.Tracer {
	if a.spans == nil {
		return nil
	}
	return a.spans.Tracer()
}
