package image

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errDropped is why a wait ends that nobody will answer any more.
var errDropped = errors.New("the image is not wanted any more")

// Fetch waits until the image is there and returns the runtime's reference to
// it. It waits out back-offs and tries again; it gives up when ctx ends, with
// what stood in the way last, and at once when trying again is of no use.
func (m *Manager) Fetch(ctx context.Context, req Request) (ref string, err error) {
	var last *Error
	for {
		res, ready := m.Ensure(req)
		switch {
		case ready:
			return res.Ref, nil
		case res.Err != nil && res.RetryAt.IsZero():
			return "", res.Err
		case res.Err != nil:
			last = res.Err
		}
		if err := m.await(ctx, req, res); err != nil {
			if last != nil && ctx.Err() != nil {
				return "", fmt.Errorf("%w: %w", err, last)
			}
			return "", err
		}
	}
}

// await waits until asking again may give another answer.
func (m *Manager) await(ctx context.Context, req Request, res Result) error {
	m.mu.Lock()
	w := m.wishes[req.key()]
	if m.closed || w == nil || w.req.Image != req.Image || w.req.Attempt != req.Attempt {
		m.mu.Unlock()
		return fmt.Errorf("fetch image %q: %w", req.Image, errDropped)
	}
	done, gone := w.done, w.gone
	m.mu.Unlock()
	var due <-chan time.Time
	if !res.Pulling {
		t := time.NewTimer(res.RetryAt.Sub(m.cfg.Now()))
		defer t.Stop()
		due, done = t.C, nil
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("fetch image %q: %w", req.Image, ctx.Err())
	case <-m.ctx.Done():
	case <-gone:
	case <-due:
	case <-done:
	}
	// Several may have come at once; asking again would bring a wish back.
	select {
	case <-m.ctx.Done():
	case <-gone:
	default:
		return nil
	}
	return fmt.Errorf("fetch image %q: %w", req.Image, errDropped)
}
