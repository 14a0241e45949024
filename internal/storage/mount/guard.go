package mount

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// slots is how many calls may run at once. File systems that answer do so in
	// microseconds; more at once would only make more threads.
	slots = 32
	// late is when a call is taken to hang and gives its slot to others.
	late = 500 * time.Millisecond
	// maxLost bounds the calls that nobody waits for any more. Each keeps a
	// thread, so there must be an end to it.
	maxLost = 128
)

// Call is a call to a file system that has not returned yet.
type Call struct {
	Key   string // what it is about, usually a path
	What  string // what is being done
	Began time.Time
	Lost  bool // nobody waits for it any more
}

// Guard runs calls that a file system may never return from.
type Guard struct {
	slots chan struct{}

	mu    sync.Mutex
	calls map[string]*call // by key
	lost  int
}

type call struct {
	Call
	done chan struct{}
	err  error // after done
}

// NewGuard returns a Guard with nothing running.
func NewGuard() *Guard {
	return &Guard{slots: make(chan struct{}, slots), calls: map[string]*call{}}
}

// Do runs fn and waits for it, at most until ctx ends. Calls with one key run
// one after the other, so one hanging file system holds back only its own. An
// fn that was left behind goes on, and holds its key, until it returns.
func (g *Guard) Do(ctx context.Context, key, what string, fn func() error) error {
	c, err := g.enter(ctx, key, what)
	if err != nil {
		return err
	}
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		g.leave(c)
		return fmt.Errorf("%s %s: %w", what, key, context.Cause(ctx))
	}
	release := sync.OnceFunc(func() { <-g.slots })
	defer release()
	go func() {
		c.err = fn()
		g.leave(c)
	}()

	hangs := time.NewTimer(late)
	defer hangs.Stop()
	for {
		select {
		case <-c.done:
			return c.err
		case <-hangs.C:
			release()
		case <-ctx.Done():
			if g.lose(c) {
				return c.hung()
			}
			return c.err
		}
	}
}

// enter takes the key once it is free.
func (g *Guard) enter(ctx context.Context, key, what string) (*call, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("%s %s: %w", what, key, err)
		}
		g.mu.Lock()
		other := g.calls[key]
		if other == nil {
			defer g.mu.Unlock()
			if g.lost >= maxLost {
				return nil, fmt.Errorf("%s %s: %d calls to file systems hang, no more are made until one returns", what, key, g.lost)
			}
			c := &call{Call: Call{Key: key, What: what, Began: time.Now()}, done: make(chan struct{})}
			g.calls[key] = c
			return c, nil
		}
		g.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s %s: %w", what, key, other.hung())
		}
	}
}

func (g *Guard) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.Lost {
		g.lost--
	}
	delete(g.calls, c.Key)
	close(c.done)
}

// lose marks a call that nobody waits for. It reports false if the call just
// returned.
func (g *Guard) lose(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-c.done:
		return false
	default:
		c.Lost = true
		g.lost++
		return true
	}
}

func (c *call) hung() error {
	return fmt.Errorf("%s %s: no answer from the file system for %s", c.What, c.Key, time.Since(c.Began).Round(time.Millisecond))
}

// Running lists the calls that have not returned, the oldest first.
func (g *Guard) Running() []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Call, 0, len(g.calls))
	for _, c := range g.calls {
		out = append(out, c.Call)
	}
	slices.SortFunc(out, func(a, b Call) int { return a.Began.Compare(b.Began) })
	return out
}
