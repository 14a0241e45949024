package observed

import (
	"errors"
	"slices"
	"time"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// serve does what there is to do for one pod and ends when nothing is left.
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
	doApply // next, which events told
	doRead
)

// turn is one step of a worker.
type turn struct {
	do      doing
	have    pod.Runtime // before
	next    pod.Runtime
	wait    time.Duration
	request *request
	listing *listing
	effects []pod.Effect // to be read and nothing else
	events  int          // how many events the read should settle
}

// next decides the step. When there is nothing to do, the worker is let go
// under the same lock, so that whoever comes next starts another.
func (c *Cache) next(e *entry) turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := e.have
	if e.shown {
		have.SeenAt = time.Time{} // what is known is out of date as a whole
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
		} else if need != now && !e.dirty && e.listing == nil && !anyGone(left) {
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
		e.after = clock.Add(lazy)
	}
	urgent := e.waiting != nil || e.tries == 0 && (need == now || e.listing != nil || e.dirty)
	if wait := e.after.Sub(clock); wait > 0 && !urgent {
		return turn{do: doWait, wait: wait}
	}
	t := turn{do: doRead, have: e.have, request: e.waiting, listing: e.listing, events: len(e.events)}
	if e.waiting != nil || e.dirty || len(open) > 0 || e.listing != nil && e.changed.After(e.listing.at) {
		t.listing = nil // what is asked for may be newer than the list
	}
	e.waiting, e.listing, e.dirty = nil, nil, false
	return t
}

// publish makes next known.
func (c *Cache) publish(e *entry, next pod.Runtime) {
	c.mu.Lock()
	news := c.setLocked(e, next)
	c.mu.Unlock()
	if news {
		c.cfg.OnChange(e.uid)
	}
}

// readInSlot reads the pod, when a slot is free, and settles the turn.
func (c *Cache) readInSlot(e *entry, t turn) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		c.settle(e, t, pod.Runtime{}, c.ctx.Err())
		return
	}
	lease := make(chan struct{}) // closed when the slot is given back
	slow := panics.After(c.cfg.Log, "observed pods", patience, func() {
		<-c.slots
		close(lease)
		c.cfg.Log.Warn("container runtime is slow to tell about a pod", "uid", e.uid, "after", patience)
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

// readTurn reads what the turn asks for.
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

// settle makes a read known, answers who waited for it, and sees whether it was
// enough.
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
		still = slices.DeleteFunc(still, func(ev event) bool { return moot(e.have, ev) })
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
	default: // a list will show whether there is anything to it
		e.tries, e.after = 0, time.Time{}
		e.events = e.events[open:]
	}
	odd := errors.Is(err, errNonsense) && !e.odd
	e.odd = errors.Is(err, errNonsense)
	c.mu.Unlock()
	switch {
	case odd:
		c.cfg.Log.Warn("container runtime tells what makes no sense; the pod is left as it was last seen", "uid", e.uid, "err", err)
	case err != nil && c.ctx.Err() == nil:
		c.cfg.Log.Debug("cannot read pod", "uid", e.uid, "err", err)
	}
	if news {
		c.cfg.OnChange(e.uid)
	}
	if t.request != nil {
		t.request.result, t.request.err = next, err
		close(t.request.done)
	}
}

// abandon lets go of an entry when the cache stops.
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
