package podsync

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// trace makes a span of a turn. The steps that the turn starts are part of it, though they go on after its end. The
// name of the span is set at the end of the turn. A pod that is not admitted yet has no spans.
func (w *worker) trace(ctx context.Context, state podplan.State) (context.Context, func()) {
	tracer := w.s.cfg.Tracer
	if tracer == nil || state == podplan.Pending {
		return ctx, func() {}
	}
	turns, spec := w.times.turns, w.times.spec
	ctx, span := tracer.Start(ctx, spanSync)
	return ctx, func() {
		if span.IsRecording() {
			span.SetName(spanName(w.place.life))
			update := updateType(w.place.life, turns, w.source.spec != spec)
			span.SetAttributes(spanAttributes(w.source.spec, update)...)
		}
		span.End()
	}
}

// traceCollect makes a span of the removal of an ended container, as a part of the
// turn that began it.
func (s *Syncer) traceCollect(ctx context.Context) (context.Context, func()) {
	if s.cfg.Tracer == nil {
		return ctx, func() {}
	}
	ctx, span := s.cfg.Tracer.Start(ctx, spanCollect)
	return ctx, func() { span.End() }
}

func spanName(life lifecycle) string {
	switch life {
	case lifeTerminating:
		return spanTerminating
	case lifeTerminated:
		return spanTerminated
	}
	return spanSync
}

// updateType is why a turn was taken, as upstream names it.
func updateType(life lifecycle, turns int, edited bool) string {
	switch {
	case life == lifeTerminating || life == lifeTerminated:
		return "kill"
	case turns == 0:
		return "create"
	case edited:
		return "update"
	}
	return "sync"
}

func spanAttributes(p *v1.Pod, update string) []attribute.KeyValue {
	out := []attribute.KeyValue{keyUpdate.String(update)}
	if p == nil {
		return out
	}
	return append(out,
		keyPod.String(pod.FullName(p)),
		keyPodName.String(p.Name),
		keyNamespace.String(p.Namespace),
		keyPodUID.String(string(p.UID)))
}
