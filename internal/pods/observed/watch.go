package observed

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/runtime/cri"
)

const (
	// steady is how long a stream must have stood before it is relied on. A
	// runtime without one answers so at once.
	steady = 2 * PollPeriod
	// streamMax is the longest pause before the stream is opened again.
	streamMax = 10 * time.Second
	// streamNone is the pause when the runtime has no stream; it might after
	// an upgrade.
	streamNone = time.Minute
)

// Run keeps the cache up to date until ctx ends. A runtime that is down is a
// state of the node: it is said once and waited for.
func (c *Cache) Run(ctx context.Context) error {
	defer func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.cancel()
		c.wg.Wait()
	}()
	c.wg.Go(func() { c.follow(ctx) })
	down := false
	var last time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		start := time.Now()
		if !last.IsZero() {
			c.metrics.interval.Observe(start.Sub(last).Seconds())
		}
		last = start
		relied := c.streaming(start)
		err := c.relist(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !down:
			c.cfg.Log.Warn("cannot list the container runtime", "err", err)
		case err == nil && down:
			c.cfg.Log.Info("container runtime is listed again")
		}
		down = err != nil
		// The list was made while the stream stood: nothing is between the two.
		period := PollPeriod
		if relied && err == nil {
			period = c.cfg.Audit
		}
		timer.Reset(time.Until(start.Add(period)))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-c.poke:
			// Not more often than without a stream.
			timer.Reset(time.Until(start.Add(PollPeriod)))
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
		}
	}
}

// relist lists everything and has every pod read that is not as it was.
func (c *Cache) relist(ctx context.Context) error {
	at, start := c.cfg.Now(), time.Now()
	all, err := c.list(ctx, "")
	if err != nil {
		return err
	}
	c.metrics.relist.Observe(time.Since(start).Seconds())
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.listed.IsZero()
	c.listed = c.cfg.Now()
	if first {
		c.unread = map[types.UID]struct{}{}
	}
	for uid, l := range all {
		e := c.entryLocked(uid)
		if first && e.have.SeenAt.IsZero() {
			c.unread[uid] = struct{}{}
		}
		// Before anything else was known of it, the pod is only known to exist.
		e.shown = e.shown || e.have.SeenAt.IsZero() || e.have.Empty() && !e.have.SeenAt.After(l.at)
		c.compareLocked(e, l)
	}
	for uid, e := range c.pods {
		if all[uid] == nil && (e.shown || !e.have.Empty()) {
			c.compareLocked(e, &listing{ref: e.have.Ref, at: at})
		}
	}
	if first {
		if len(c.unread) == 0 {
			c.syncLocked()
		} else {
			c.wg.Go(func() { c.syncAnyway(syncPatience) })
		}
	}
	return nil
}

// syncAnyway stops waiting for pods that cannot be read.
func (c *Cache) syncAnyway(patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.synced:
	case <-c.ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread != nil && c.ctx.Err() == nil {
		c.cfg.Log.Warn("going on without knowing every pod in the container runtime", "unread", len(c.unread))
		c.syncLocked()
	}
}

// compareLocked has the pod read if the list shows something else.
func (c *Cache) compareLocked(e *entry, l *listing) {
	if e.have.SeenAt.After(l.at) || !e.shown && l.same(e.have) {
		return
	}
	e.listing = l
	c.workLocked(e)
}

// follow reads the event stream for as long as ctx lasts.
func (c *Cache) follow(ctx context.Context) {
	pause, saidNone, saidBroken := PollPeriod, false, false
	for ctx.Err() == nil {
		opened := time.Now()
		wall := c.cfg.Now().UnixNano()
		c.beginStream(opened)
		err := c.cfg.Runtime.ContainerEvents(ctx, func(ev *runtimeapi.ContainerEventResponse) {
			c.handle(event{ContainerEventResponse: ev, old: ev.CreatedAt < wall})
		})
		stood := time.Since(opened) >= steady
		c.endStream(stood)
		if ctx.Err() != nil {
			return
		}
		c.metrics.broken.Inc()
		if stood {
			pause, saidBroken = PollPeriod, false
		}
		switch {
		case cri.IsUnimplemented(err):
			if !saidNone {
				c.cfg.Log.Info("container runtime has no event stream, listing it every second", "err", err)
			}
			saidNone, pause = true, streamNone
		case !saidBroken:
			c.cfg.Log.Warn("event stream of the container runtime broke, listing it every second until it is back", "err", err)
			saidBroken, saidNone = true, false
		}
		c.askList()
		if !sleep(ctx, pause) {
			return
		}
		pause = min(pause*2, streamMax)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (c *Cache) beginStream(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = t
}

// endStream notes that the stream has ended.
func (c *Cache) endStream(stood bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = time.Time{}
	if stood {
		c.streams++
	}
}

// streaming reports whether there is an event stream to rely on.
func (c *Cache) streaming(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stream.IsZero() && now.Sub(c.stream) >= steady
}

func (c *Cache) askList() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// handle takes in one event. It does not block: the runtime waits for us.
func (c *Cache) handle(ev event) {
	if !ev.old {
		c.metrics.latency.Observe(max(c.cfg.Now().Sub(time.Unix(0, ev.CreatedAt)), 0).Seconds())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok := c.ownerLocked(ev)
	if !ok {
		if ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
			c.askList() // somebody's, but whose?
		}
		return
	}
	e := c.entryLocked(uid)
	if !e.busy {
		if _, v := judge(e.have, ev); v == known {
			if e.have.Empty() && !e.shown {
				delete(c.pods, uid)
			}
			return
		}
	}
	if len(e.events) < maxEvents {
		e.events = append(e.events, ev)
	} else {
		e.dirty = true
		c.metrics.dropped.Inc()
	}
	e.tries = 0
	c.workLocked(e)
}

// ownerLocked names the pod that an event is about. A removed sandbox's event
// may carry no status, only an id.
func (c *Cache) ownerLocked(ev event) (types.UID, bool) {
	if uid, ok := c.owners[ev.ContainerId]; ok {
		return uid, true // whatever else is said of it
	}
	if ref, ok := cri.PodRef(ev.PodSandboxStatus.GetLabels()); ok {
		return ref.UID, !otherwise(string(ref.UID), ev.PodSandboxStatus.GetMetadata().GetUid())
	}
	for _, s := range ev.ContainersStatuses {
		if ref, ok := cri.PodRef(s.GetLabels()); ok {
			return ref.UID, true
		}
	}
	return "", false
}
