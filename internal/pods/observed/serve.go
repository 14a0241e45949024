package observed

import (
	"errors"
	"slices"
	"time"

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// serve is the worker of one pod; it ends when no work is left.
func (c *Cache) serve(e *entry) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t := c.next(e)
		switch t.do {
		case doNothing:
			return
		case doWait:
			timer.Reset(t.wait)
			select {
			case <-c.ctx.Done():
				c.abandon(e)
				return
			case <-timer.C:
			case <-e.wake:
			}
		case doApply:
			addMessages(c.ctx, t.have, &t.next)
			c.publish(e, t.next)
		case doRead:
			c.readInSlot(e, t)
			if c.ctx.Err() != nil {
				c.abandon(e)
				return
			}
		}
	}
}

type doing int

const (
	doNothing doing = iota
	doWait
	doApply // apply next, which events have shown
	doRead
)

// turn is one iteration of a worker.
type turn struct {
	do      doing
	have    pod.Runtime // before
	next    pod.Runtime
	wait    time.Duration
	request *request
	listing *listing
	effects []pod.Effect // to be read and nothing else
	events  int          // how many events the read covers
}

// next decides the next step. When there is no work, the worker is released under the same
// lock, so that new work starts another.
func (c *Cache) next(e *entry) turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := e.have
	if e.shown {
		have.SeenAt = time.Time{} // the whole state is out of date
	}
	next, open, need := digest(have, e.events)
	moved := !equal(have, next)
	e.events = open
	if moved {
		return turn{do: doApply, have: e.have, next: next}
	}
	if r := e.waiting; r != nil && !r.all && !have.SeenAt.IsZero() {
		left := unshown(have, r.effects)
		if len(left) == 0 {
			e.waiting = nil
			r.result = have
			close(r.done)
		} else if need != now && !e.dirty && e.listing == nil && !anyRemoved(left) {
			e.waiting = nil
			return turn{do: doRead, have: e.have, request: r, effects: left}
		}
	}
	if e.waiting == nil && e.listing == nil && !e.dirty && len(open) == 0 {
		e.busy, e.tries, e.after = false, 0, time.Time{}
		if e.have.Empty() && !e.shown {
			delete(c.pods, e.uid)
		}
		return turn{do: doNothing}
	}
	clock := time.Now()
	if e.tries == 0 && need == later && e.listing == nil && !e.dirty && e.after.IsZero() {
		e.after = clock.Add(lazyDelay)
	}
	urgent := e.waiting != nil || e.tries == 0 && (need == now || e.listing != nil || e.dirty)
	if wait := e.after.Sub(clock); wait > 0 && !urgent {
		return turn{do: doWait, wait: wait}
	}
	t := turn{do: doRead, have: e.have, request: e.waiting, listing: e.listing, events: len(e.events)}
	if e.waiting != nil || e.dirty || len(open) > 0 || e.listing != nil && e.changed.After(e.listing.at) {
		t.listing = nil // the requested read has to be newer than the list
	}
	e.waiting, e.listing, e.dirty = nil, nil, false
	return t
}

// publish stores next.
func (c *Cache) publish(e *entry, next pod.Runtime) {
	c.mu.Lock()
	news := c.setLocked(e, next)
	c.mu.Unlock()
	if news {
		c.cfg.OnChange(e.uid)
	}
}

// readInSlot reads the pod when a slot is free, and completes the turn.
func (c *Cache) readInSlot(e *entry, t turn) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		c.settle(e, t, pod.Runtime{}, c.ctx.Err())
		return
	}
	lease := make(chan struct{}) // closed when the slot is released
	slow := panics.After(c.cfg.Log, "observed pods", slotTimeout, func() {
		<-c.slots
		close(lease)
		c.cfg.Log.Warn("reading pod from container runtime is slow", "podUID", e.uid, "after", slotTimeout)
	})
	start := time.Now()
	var next pod.Runtime
	err := panics.Try(c.cfg.Log, "observed pods", func() (err error) {
		next, err = c.readTurn(e, t)
		if err == nil {
			c.metrics.podRead.Observe(time.Since(start).Seconds())
			addMessages(c.ctx, t.have, &next)
		}
		return err
	})
	if slow.Stop() {
		<-c.slots
	} else {
		<-lease
	}
	c.settle(e, t, next, err)
}

// readTurn does the read of the turn.
func (c *Cache) readTurn(e *entry, t turn) (next pod.Runtime, err error) {
	if t.effects != nil {
		return c.readEffects(c.ctx, e.uid, t.have, t.effects)
	}
	next, err = c.read(c.ctx, e.uid, t.have, t.listing, t.request != nil)
	if t.request != nil && err == nil {
		next, err = c.seeMade(c.ctx, e.uid, next, t.request.effects)
	}
	return next, err
}

// settle stores the result of a read, answers the callers that wait for it, and decides
// whether another read is needed.
func (c *Cache) settle(e *entry, t turn, next pod.Runtime, err error) {
	c.mu.Lock()
	var news bool
	if err == nil {
		news = c.setLocked(e, next)
	}
	c.readLocked(e.uid)
	open := t.events
	if err == nil {
		_, still, _ := digest(e.have, e.events[:t.events])
		still = slices.DeleteFunc(still, func(ev event) bool { return removedSince(e.have, ev) })
		open = len(still)
		e.events = append(still, e.events[t.events:]...)
	}
	switch {
	case err == nil && open == 0:
		e.tries, e.after = 0, time.Time{}
	case e.tries+1 < maxTries:
		e.after = time.Now().Add(min(retryMin<<e.tries, retryMax))
		e.tries++
		e.dirty = e.dirty || err != nil
	default: // the next list decides
		e.tries, e.after = 0, time.Time{}
		e.events = e.events[open:]
	}
	odd := errors.Is(err, errInconsistent) && !e.odd
	e.odd = errors.Is(err, errInconsistent)
	c.mu.Unlock()
	switch {
	case odd:
		c.cfg.Log.Warn("inconsistent response of the container runtime; keeping the last observed state of the pod",
			"podUID", e.uid, "err", err)
	case err != nil && c.ctx.Err() == nil:
		c.cfg.Log.Debug("failed to read pod from container runtime", "podUID", e.uid, "err", err)
	}
	if news {
		c.cfg.OnChange(e.uid)
	}
	if t.request != nil {
		t.request.result, t.request.err = next, err
		close(t.request.done)
	}
}

// abandon fails the waiting callers of an entry when the cache stops.
func (c *Cache) abandon(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.busy = false
	if r := e.waiting; r != nil {
		e.waiting = nil
		r.err = errStopped
		close(r.done)
	}
}
