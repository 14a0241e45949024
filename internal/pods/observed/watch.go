package observed

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/clock"
	"keelson/internal/runtime/cri"
)

const (
	// steady is how long a stream must have been open before it is relied on. A runtime
	// without one returns an error at once.
	steady = 2 * PollPeriod
	// streamMax is the longest pause before the stream is opened again.
	streamMax = 10 * time.Second
	// streamNone is the pause when the runtime has no stream; it might after
	// an upgrade.
	streamNone = time.Minute
)

// Run keeps the cache up to date until ctx ends. While the runtime is down it retries; the
// failure is logged once.
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
			c.cfg.Log.Warn("failed to list pods of container runtime", "err", err)
		case err == nil && down:
			c.cfg.Log.Info("listed pods of container runtime again")
		}
		down = err != nil
		// The list was made while the stream was open: no change between the two is missed.
		period := PollPeriod
		if relied && err == nil {
			period = c.cfg.Audit
		}
		timer.Reset(time.Until(start.Add(period)))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-c.relistNow:
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

// relist lists all pods and requests a read of each that has changed.
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
		// Of a pod that was not observed before only the existence is known.
		e.shown = e.shown || e.have.SeenAt.IsZero() || e.have.Empty() && !e.have.SeenAt.After(l.at)
		if e.shown {
			e.have.Ref = l.ref
		}
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
			c.wg.Go(func() { c.syncAnyway(syncTimeout) })
		}
	}
	return nil
}

// syncAnyway closes synced though some pods could not be read.
func (c *Cache) syncAnyway(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.synced:
	case <-c.ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread != nil && c.ctx.Err() == nil {
		c.cfg.Log.Warn("not all pods of container runtime could be read; continuing", "unread", len(c.unread))
		c.syncLocked()
	}
}

// compareLocked requests a read of the pod if the list differs from its state.
func (c *Cache) compareLocked(e *entry, l *listing) {
	if e.have.SeenAt.After(l.at) || !e.shown && l.same(e.have) {
		return
	}
	e.listing = l
	c.workLocked(e)
}

// follow reads the event stream for as long as ctx lasts.
func (c *Cache) follow(ctx context.Context) {
	backoff, loggedNone, loggedBroken := clock.Backoff(PollPeriod, streamMax), false, false
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
			backoff, loggedBroken = clock.Backoff(PollPeriod, streamMax), false
		}
		switch {
		case cri.IsUnimplemented(err):
			if !loggedNone {
				c.cfg.Log.Info("container runtime has no event stream; relisting every second", "err", err)
			}
			loggedNone, backoff = true, clock.Backoff(streamNone, streamMax)
		case !loggedBroken:
			c.cfg.Log.Warn("event stream of container runtime broke; relisting every second until it is open again",
				"err", err)
			loggedBroken, loggedNone = true, false
		}
		c.askList()
		if !clock.Sleep(ctx, backoff.Step()) {
			return
		}
	}
}

func (c *Cache) beginStream(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = t
}

// endStream records the end of the stream.
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
	case c.relistNow <- struct{}{}:
	default:
	}
}

// handle queues one event for its pod. It does not block the stream.
func (c *Cache) handle(ev event) {
	if !ev.old {
		c.metrics.latency.Observe(max(c.cfg.Now().Sub(time.Unix(0, ev.CreatedAt)), 0).Seconds())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok := c.ownerLocked(ev)
	if !ok {
		if ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
			c.askList() // the pod is unknown
		}
		return
	}
	e := c.entryLocked(uid)
	if !e.busy {
		if _, v := compareEvent(e.have, ev); v == known {
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
		return uid, true // the recorded owner has precedence
	}
	if ref, ok := cri.PodRef(ev.PodSandboxStatus.GetLabels()); ok {
		return ref.UID, !conflicting(string(ref.UID), ev.PodSandboxStatus.GetMetadata().GetUid())
	}
	for _, s := range ev.ContainersStatuses {
		if ref, ok := cri.PodRef(s.GetLabels()); ok {
			return ref.UID, true
		}
	}
	return "", false
}
