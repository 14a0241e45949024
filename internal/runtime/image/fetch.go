package image

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errDropped is returned to callers waiting for a request that was dropped or superseded.
var errDropped = errors.New("image request was dropped")

// Fetch waits until the image is present and returns the runtime's reference to it. It retries
// after back-offs. It fails when ctx ends, with the last error, or at once if a retry cannot
// succeed.
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

// await waits until Ensure may return another result.
func (m *Manager) await(ctx context.Context, req Request, res Result) error {
	m.mu.Lock()
	st := m.states[req.key()]
	if m.closed || st == nil || st.req.Image != req.Image || st.req.Attempt != req.Attempt {
		m.mu.Unlock()
		return fmt.Errorf("fetch image %q: %w", req.Image, errDropped)
	}
	done, gone := st.done, st.gone
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
	// Several channels may be ready. Another call of Ensure would create the dropped request again.
	select {
	case <-m.ctx.Done():
	case <-gone:
	default:
		return nil
	}
	return fmt.Errorf("fetch image %q: %w", req.Image, errDropped)
}
