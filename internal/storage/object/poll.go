package object

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Detection is how changes of objects are found out, in the words of the
// configuration.
type Detection string

// The ways to find out.
const (
	Watch Detection = "Watch"
	Cache Detection = "Cache" // by reading again, what was read counts meanwhile
	Get   Detection = "Get"   // by reading again, and each reader asks for itself
)

// poll keeps e current by reading it again, until ctx ends or the object can
// change no more. What is missing or cannot be read is asked for sooner: somebody
// waits for it.
func (s *Store) poll(ctx context.Context, e *entry) {
	log := s.cfg.Log.With("kind", e.ref.Kind, "namespace", e.ref.Namespace, "name", e.ref.Name)
	delay, reported := minRetry, ""
	for {
		final, err := s.contain(e, func() (bool, error) { return s.ask(ctx, e) })
		if final || ctx.Err() != nil {
			return
		}
		wait := s.cfg.Period()
		switch {
		case err != nil:
			s.fail(e, err)
			if said := err.Error(); said != reported && delay > 4*minRetry {
				log.Warn("cannot read object", "err", err)
				reported = said
			}
			wait = min(delay, wait)
			delay = min(2*delay, maxRetry)
		case s.missing(e):
			wait = min(delay, wait)
			delay = min(2*delay, maxRetry)
		default:
			delay, reported = minRetry, ""
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait - rand.N(wait/8+1)):
		}
	}
}

// refresh asks the API server for what this reader is not to have from memory. An
// older answer does when there is none to be had and one may be kept.
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

// missing reports whether there is known to be no such object.
func (s *Store) missing(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.obj == nil
}
