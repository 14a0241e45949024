package podsync

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// trace makes a span of a turn. The steps that the turn starts are part of it,
// though they go on after its end. What kind of turn it was is known then.
func (w *worker) trace(ctx context.Context) (context.Context, func()) {
	tracer := w.s.cfg.Tracer
	if tracer == nil {
		return ctx, func() {}
	}
	turns, spec := w.times.turns, w.times.spec
	ctx, span := tracer.Start(ctx, spanSync)
	return ctx, func() {
		if span.IsRecording() {
			w.mu.Lock()
			life := w.place.life
			w.mu.Unlock()
			span.SetName(spanName(life))
			span.SetAttributes(spanAttributes(w.spec, updateType(life, turns, w.spec != spec))...)
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

// updateType is why a turn was taken, in upstream's words.
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
	return append(out, keyPod.String(pod.FullName(p)), keyPodName.String(p.Name), keyNamespace.String(p.Namespace), keyPodUID.String(string(p.UID)))
}
