package objectcache

import (
	"context"
	"fmt"
	"math/rand/v2"

	"keelson/internal/host/clock"
)

// Detection is a configMapAndSecretChangeDetectionStrategy.
type Detection string

// The strategies.
const (
	Watch Detection = "Watch"
	Cache Detection = "Cache" // by periodic reads
	Get   Detection = "Get"   // by periodic reads and by each reader
)

// poll reads e periodically, until ctx ends or the object is immutable. An object that is missing or cannot be read is
// retried sooner, because a reader may be waiting for it.
func (s *Store) poll(ctx context.Context, e *entry) {
	log := s.cfg.Log.With("kind", e.ref.Kind, "namespace", e.ref.Namespace, "name", e.ref.Name)
	backoff, reported := clock.Backoff(minRetry, maxRetry), ""
	for {
		final, err := s.guard(e, func() (bool, error) { return s.ask(ctx, e) })
		if final || ctx.Err() != nil {
			return
		}
		wait := s.cfg.Period()
		switch {
		case err != nil:
			s.fail(e, err)
			if text := err.Error(); text != reported && backoff.Duration > 4*minRetry {
				log.Warn("failed to read object", "err", err)
				reported = text
			}
			wait = min(backoff.Step(), wait)
		case s.missing(e):
			wait = min(backoff.Step(), wait)
		default:
			backoff, reported = clock.Backoff(minRetry, maxRetry), ""
		}
		if !clock.Sleep(ctx, wait-rand.N(wait/8+1)) {
			return
		}
	}
}

// refresh reads the object from the API server if the strategy requires it for this reader. With Cache an older state
// is used if that fails.
func (s *Store) refresh(ctx context.Context, e *entry) error {
	s.mu.Lock()
	due := s.ctx != nil && (s.cfg.Detect == Get || e.stale)
	e.stale = false
	s.mu.Unlock()
	if !due {
		return nil
	}
	_, err := s.ask(ctx, e)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Detect == Cache && e.obj != nil {
		e.stale = true
		return nil
	}
	e.missed = true
	return fmt.Errorf("cannot read %s: %w", e.ref, err)
}

// missing reports whether the object is known not to exist.
func (s *Store) missing(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.obj == nil
}
