package mount

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"keelson/internal/pods/panics"
)

const (
	// slots is the number of concurrent calls. File systems that respond do so in microseconds;
	// more would only create threads.
	slots = 32
	// hangAfter is when a call is considered to hang and releases its slot.
	hangAfter = 500 * time.Millisecond
	// maxPerOwner bounds the calls of one owner; further ones wait. The file systems of one pod must not
	// exhaust what is shared.
	maxPerOwner = 32
	// maxAbandoned bounds the number of abandoned calls. Each occupies a thread, and the runtime aborts
	// at ten thousand threads.
	maxAbandoned = 4096
)

// Call is a call to a file system that has not returned.
type Call struct {
	Key       string // usually a path
	What      string // the operation
	Began     time.Time
	Abandoned bool // the caller has stopped waiting
}

// Guard runs calls that may hang in a file system.
type Guard struct {
	slots chan struct{}

	mu        sync.Mutex
	calls     map[string]*call // by key
	abandoned int
	owned     map[string]int // count by owner
	freed     chan struct{}  // closed and replaced when a call of an owner returns
}

type call struct {
	Call
	owner string
	done  chan struct{}
	err   error // set before done is closed
}

// NewGuard returns a Guard without calls.
func NewGuard() *Guard {
	return &Guard{
		slots: make(chan struct{}, slots),
		calls: map[string]*call{},
		owned: map[string]int{},
		freed: make(chan struct{}),
	}
}

type ownerKey struct{}

// Owned attributes the calls made with the context to an owner, such as a pod.
func Owned(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// Do runs fn and waits until it returns or ctx ends. Calls with the same key run sequentially, so a
// file system that hangs only blocks itself, and an owner with many hanging calls only blocks
// itself. An abandoned fn continues and holds its key until it returns.
func (g *Guard) Do(ctx context.Context, key, what string, fn func() error) error {
	return g.do(ctx, key, what, false, fn)
}

// Rescue is Do for a call that makes others return, such as a forced unmount. The limits do not
// apply to it.
func (g *Guard) Rescue(ctx context.Context, key, what string, fn func() error) error {
	return g.do(ctx, key, what, true, fn)
}

func (g *Guard) do(ctx context.Context, key, what string, always bool, fn func() error) error {
	c, err := g.enter(ctx, key, what, always)
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
		c.err = panics.Catch(fn)
		g.leave(c)
	}()

	hangs := time.NewTimer(hangAfter)
	defer hangs.Stop()
	for {
		select {
		case <-c.done:
			return c.err
		case <-hangs.C:
			release()
		case <-ctx.Done():
			if g.abandon(c) {
				return c.hung()
			}
			return c.err
		}
	}
}

// enter acquires the key as soon as it is free and the owner is below its limit.
func (g *Guard) enter(ctx context.Context, key, what string, always bool) (*call, error) {
	owner, _ := ctx.Value(ownerKey{}).(string)
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("%s %s: %w", what, key, err)
		}
		c, wait, why := g.tryEnter(owner, key, what, always)
		if c != nil {
			return c, nil
		}
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
			}
		}
		return nil, fmt.Errorf("%s %s: %w", what, key, why())
	}
}

// tryEnter acquires the key, or returns what to wait for and why. If there is nothing to wait for,
// the call is rejected.
func (g *Guard) tryEnter(owner, key, what string, always bool) (c *call, wait <-chan struct{}, why func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.calls[key]; other != nil {
		return nil, other.done, other.hung
	}
	if n := g.owned[owner]; !always && n >= maxPerOwner {
		return nil, g.freed, func() error {
			return fmt.Errorf("%d calls to file systems of %s have not returned", n,
				owner)
		}
	}
	if n := g.abandoned; !always && n >= maxAbandoned {
		return nil, nil, func() error {
			return fmt.Errorf("%d calls to file systems hang, no more are made until one returns", n)
		}
	}
	c = &call{Call: Call{Key: key, What: what, Began: time.Now()}, owner: owner, done: make(chan struct{})}
	g.calls[key] = c
	if owner != "" {
		g.owned[owner]++
	}
	return c, nil, nil
}

func (g *Guard) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.Abandoned {
		g.abandoned--
	}
	if c.owner != "" {
		if g.owned[c.owner]--; g.owned[c.owner] == 0 {
			delete(g.owned, c.owner)
		}
		close(g.freed)
		g.freed = make(chan struct{})
	}
	delete(g.calls, c.Key)
	close(c.done)
}

// abandon marks a call as abandoned. It returns false if the call has just returned.
func (g *Guard) abandon(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-c.done:
		return false
	default:
		c.Abandoned = true
		g.abandoned++
		return true
	}
}

func (c *call) hung() error {
	return fmt.Errorf("%s %s: file system did not respond for %s", c.What, c.Key,
		time.Since(c.Began).Round(time.Millisecond))
}

// Running lists the calls that have not returned, oldest first.
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
