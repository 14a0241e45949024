package mount

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"keelson/internal/node/panics"
)

const (
	// slots is how many calls may run at once. File systems that answer do so in
	// microseconds; more at once would only make more threads.
	slots = 32
	// late is when a call is taken to hang and gives its slot to others.
	late = 500 * time.Millisecond
	// ofOne is how many calls of one owner there may be; its next ones wait. The file
	// systems of one pod must not use up what is there for all.
	ofOne = 32
	// maxLost bounds the calls that nobody waits for any more. Each keeps a
	// thread, and a process may have ten thousand.
	maxLost = 4096
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
	owned map[string]int // how many, by owner
	freed chan struct{}  // closed, and made anew, when a call of an owner returns
}

type call struct {
	Call
	owner string
	done  chan struct{}
	err   error // after done
}

// NewGuard returns a Guard with nothing running.
func NewGuard() *Guard {
	return &Guard{slots: make(chan struct{}, slots), calls: map[string]*call{}, owned: map[string]int{}, freed: make(chan struct{})}
}

type ownerKey struct{}

// Owned has the calls that are made with the context count as the owner's, a pod's.
func Owned(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// Do runs fn and waits for it, at most until ctx ends. Calls with one key run
// one after the other, so one hanging file system holds back only its own, and an
// owner with many that hang holds back only itself. An fn that was left behind goes
// on, and holds its key, until it returns.
func (g *Guard) Do(ctx context.Context, key, what string, fn func() error) error {
	return g.do(ctx, key, what, false, fn)
}

// Rescue is Do for a call that has others return: it is made however many hang.
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

// enter takes the key once it is free, and the owner may make another call.
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

// tryEnter takes the key, or tells what to wait for and why. Without anything to wait
// for, the call is refused.
func (g *Guard) tryEnter(owner, key, what string, always bool) (c *call, wait <-chan struct{}, why func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.calls[key]; other != nil {
		return nil, other.done, other.hung
	}
	if n := g.owned[owner]; !always && n >= ofOne {
		return nil, g.freed, func() error { return fmt.Errorf("%d calls to file systems of %s have not returned", n, owner) }
	}
	if n := g.lost; !always && n >= maxLost {
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
	if c.Lost {
		g.lost--
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
